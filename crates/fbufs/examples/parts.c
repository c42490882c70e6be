/* Messages: a buffer gets a header in front and is cut in two, and none of its bytes is copied. */
#include <fbufs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                            \
    do {                                                           \
        if (!(condition)) {                                        \
            fprintf(stderr, "%s: %s\n", #condition, uf_error_text()); \
            exit(1);                                               \
        }                                                          \
    } while (0)

int main(void) {
    int fds[2];
    void *got;
    ssize_t count;
    char *bytes = uf_allocate(100);
    MUST(bytes && uf_pair(fds) == 0);
    memcpy(bytes + 20, "a long payload", 14); /* with room for headers in front */

    mblk_t *first = uf_esballoc(bytes + 20, 14); /* the fbuf is the message's now */
    MUST(first);
    mblk_t *second = uf_split(first, 6); /* both are parts of it */
    MUST(second);
    MUST(uf_prepend(first, "1: ", 3) == 0); /* a block of its own, since the other message shares the fbuf */
    MUST(uf_prepend(second, "2: ", 3) == 0);
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
