/* Messages: a buffer gets a header in front and is cut in two, and none of its bytes is copied. */
#include <fbufs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stream.h>

#define MUST(condition)                                            \
    do {                                                           \
        if (!(condition)) {                                        \
            fprintf(stderr, "%s: %s\n", #condition, uf_error_text()); \
            exit(1);                                               \
        }                                                          \
    } while (0)

/* A header in front of a message: a block of its own. */
static mblk_t *with_header(const char *header, mblk_t *mp) {
    mblk_t *first = allocb(strlen(header), BPRI_MED);
    MUST(first);
    memcpy(first->b_wptr, header, strlen(header));
    first->b_wptr += strlen(header);
    linkb(first, mp);
    return first;
}

int main(void) {
    int fds[2];
    void *got;
    ssize_t count;
    char *bytes = uf_allocate(100);
    MUST(bytes && uf_pair(fds) == 0);
    memcpy(bytes + 20, "a long payload", 14); /* with room for headers in front */

    mblk_t *first = uf_esballoc(bytes + 20, 14); /* the fbuf is the message's now */
    MUST(first);
    mblk_t *second = dupmsg(first); /* both name its bytes */
    MUST(adjmsg(first, -8) == 1 && adjmsg(second, 6) == 1); /* and now a part each */
    first = with_header("1: ", first);
    second = with_header("2: ", second);
    MUST(uf_putmsg(fds[0], first) == 9); /* and the message is gone */
    MUST(uf_putmsg(fds[0], second) == 11);

    for (int left = 20; left > 0; left -= (int)count) {
        count = uf_get(fds[1], &got); /* each block comes as an fbuf */
        MUST(count > 0);
        printf("%.*s\n", (int)count, (char *)got);
        MUST(uf_deallocate(got, (size_t)count) == NULL);
    }
    MUST(uf_close(fds[0]) == 0 && uf_close(fds[1]) == 0);
    return 0;
}
