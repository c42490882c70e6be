/* A first program: one buffer goes into a pipe, and another one comes out. */
#include <fbufs.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int failed(const char *call) {
    fprintf(stderr, "%s: %s\n", call, uf_error_text()); /* a sentence: what was wrong, and what to do about it */
    return 1;
}

int main(void) {
    int fds[2];
    void *got;
    const char *why;
    if (pipe(fds) != 0)
        return 1;

    char *text = uf_allocate(6); /* an fbuf, which is ours */
    if (!text)
        return failed("uf_allocate");
    memcpy(text, "hello\n", 6);
    if (uf_write(fds[1], text, 6) != 6) /* which takes it away: text must not be touched any more */
        return failed("uf_write");

    ssize_t count = uf_get(fds[0], &got); /* which gives another one */
    if (count < 0)
        return failed("uf_get");
    printf("%.*s", (int)count, (char *)got);
    uf_deallocate(got, (size_t)count);

    if (uf_explain(fds[1], &why) < 0)
        return failed("uf_explain");
    printf("%s\n", why);
    return 0;
}
