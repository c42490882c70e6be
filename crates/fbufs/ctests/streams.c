/* Streams: programs that print and read lines, over channels and over pipes, with one changed call. */
#include "check.h"

static char path[100];
enum { LINES = 100000 };

static void print_lines(FILE *stream) {
    CHECK(stream);
    for (int i = 0; i < LINES; i++)
        CHECK(fprintf(stream, "line %d of %d\n", i, LINES) > 0);
    CHECK(fclose(stream) == 0);
}

static void read_lines(FILE *stream) {
    char line[100], expected[100];
    CHECK(stream);
    for (int i = 0; i < LINES; i++) {
        CHECK(fgets(line, sizeof line, stream));
        snprintf(expected, sizeof expected, "line %d of %d\n", i, LINES);
        CHECK(strcmp(line, expected) == 0);
    }
    CHECK(!fgets(line, sizeof line, stream) && feof(stream) && !ferror(stream));
    CHECK(fclose(stream) == 0);
}

static void writer(void *ignored) {
    (void)ignored;
    OK(uf_join("streams"));
    print_lines(uf_fdopen(uf_connect(path), "w"));
}

static void pipe_writer(void *fds) {
    OK(close(((int *)fds)[0]));
    print_lines(uf_fdopen(((int *)fds)[1], "w"));
}

/* Both directions of one channel, and blocks longer than any buffer. */
static void both_ways(void) {
    int fds[2];
    static char sent[1 << 20], got[1 << 20];
    OK(uf_pair(fds));
    FILE *one = uf_fdopen(fds[0], "r+"), *other = uf_fdopen(fds[1], "r+");
    CHECK(one && other);
    for (size_t i = 0; i < sizeof sent; i++)
        sent[i] = (char)pattern(i, 1);
    CHECK(fwrite(sent, 1, sizeof sent, one) == sizeof sent && fflush(one) == 0);
    CHECK(fread(got, 1, sizeof got, other) == sizeof got);
    CHECK(memcmp(sent, got, sizeof sent) == 0);
    CHECK(fputs("back\n", other) >= 0 && fflush(other) == 0);
    CHECK(fgets(got, sizeof got, one) && strcmp(got, "back\n") == 0);
    CHECK(fseek(one, 0, SEEK_SET) == -1);
    CHECK(fclose(other) == 0);
    /* What cannot be written is told. */
    CHECK(fputs("nobody reads this\n", one) >= 0);
    errno = 0;
    CHECK(fflush(one) == EOF && errno == EPIPE && ferror(one));
    fclose(one);
    FAILS(EBADF, uf_close(fds[0]));
}

/* What was written before there was no room is told, and the reason. */
static void nonblocking(void) {
    int fds[2];
    static char sent[1 << 20];
    ssize_t count;
    void *all;
    OK(uf_pair(fds));
    OK(uf_set_nonblocking(fds[0], 1));
    OK(uf_set_nonblocking(fds[1], 1));
    for (int i = 0; i < 254; i++) /* so that there is room for two */
        CHECK(uf_write(fds[0], uf_allocate(1), 1) == 1);
    FILE *stream = uf_fdopen(fds[0], "w");
    CHECK(stream && setvbuf(stream, NULL, _IONBF, 0) == 0);
    errno = 0;
    size_t written = fwrite(sent, 1, sizeof sent, stream);
    CHECK(errno == EAGAIN && ferror(stream) && written > 0 && written < sizeof sent);
    while ((count = uf_get(fds[1], &all)) > 0) {
        CHECK(uf_deallocate(all, (size_t)count) == NULL);
        written -= count > 1 ? (size_t)count : 0;
    }
    CHECK(count == -1 && errno == EAGAIN && written == 0);
    CHECK(fclose(stream) == 0);
    OK(uf_close(fds[1]));
}

static void child_of_reader(void *stream) {
    char line[100];
    errno = 0;
    CHECK(!fgets(line, sizeof line, stream) && ferror((FILE *)stream) && errno == ESTALE);
}

/* A child finds nothing but an error in its parent's stream. */
static void after_fork(void) {
    int fds[2];
    char line[20000];
    OK(uf_pair(fds));
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = 0;
    CHECK(uf_write(fds[0], memset(uf_allocate(sizeof line), 'x', sizeof line), sizeof line) == sizeof line);
    FILE *stream = uf_fdopen(fds[1], "r");
    CHECK(stream && setvbuf(stream, NULL, _IONBF, 0) == 0 && fgetc(stream) == 'x');
    ends(process(child_of_reader, stream));
    CHECK(fread(line, 1, sizeof line - 1, stream) == sizeof line - 1 && line[5000] == 'x');
    CHECK(fclose(stream) == 0);
    OK(uf_close(fds[0]));
}

static void misuse(void) {
    int fds[2];
    OK(uf_pair(fds));
    FAILS_WITH(NULL, EFAULT, uf_fdopen(fds[0], NULL));
    FAILS_WITH(NULL, EINVAL, uf_fdopen(fds[0], "?"));
    FAILS_WITH(NULL, EBADF, uf_fdopen(-1, "r"));
    FAILS_WITH(NULL, EBADF, uf_fdopen(12345, "r"));
    OK(uf_close(fds[0]));
    OK(uf_close(fds[1]));
}

int main(void) {
    snprintf(path, sizeof path, "%s/streams", directory());
    int fds[2];
    OK(pipe(fds));
    pid_t child = process(pipe_writer, fds);
    OK(close(fds[1]));
    read_lines(uf_fdopen(fds[0], "r"));
    ends(child);

    OK(uf_join("streams"));
    int listener = uf_listen(path);
    CHECK(listener >= 0);
    child = process(writer, NULL);
    read_lines(uf_fdopen(uf_accept(listener), "r"));
    ends(child);
    both_ways();
    nonblocking();
    after_fork();
    misuse();
    remove_directory();
    return 0;
}
