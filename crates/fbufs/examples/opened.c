/* A Genie server as a descriptor: `queue NAME` (examples/queue) serves, and this writes to it and reads from it.
 * usage: opened NAME */
#include <fbufs.h>
#include <stdio.h>
#include <string.h>

static int failed(const char *call) {
    fprintf(stderr, "%s: %s\n", call, uf_error_text());
    return 1;
}

int main(int argc, char **argv) {
    enum { LENGTH = 1 << 20 };
    void *got;
    const char *why;
    if (argc != 2)
        return 2;
    int fd = uf_open(argv[1], "take", "put"); /* the server's name, and its services for input and for output */
    if (fd < 0)
        return failed("uf_open");
    char *bytes = uf_allocate_for(fd, LENGTH); /* memory that the server can be shown */
    if (!bytes)
        return failed("uf_allocate_for");
    memset(bytes, 'x', LENGTH);
    if (uf_write(fd, bytes, LENGTH) != LENGTH)
        return failed("uf_write");

    ssize_t count = uf_read(fd, &got, LENGTH);
    if (count < 0)
        return failed("uf_read");
    printf("%zd bytes, %s\n", count, got == (void *)bytes ? "in the pages that were written" : "elsewhere");
    uf_deallocate(got, (size_t)count);
    if (uf_explain(fd, &why) < 0)
        return failed("uf_explain");
    printf("%s\n", why);
    return uf_close(fd);
}
