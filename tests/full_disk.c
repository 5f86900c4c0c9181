/* A full disk for LD_PRELOAD: while the file FULL_DIR/filler exists, no file below FULL_DIR gets another block.
 *
 *   FULL_DIR=/dev/shm/x LD_PRELOAD=./full_disk.so python ...
 *
 * What a file has allocated already it keeps, as on a real disk: a write into that goes through.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static int refused(int fd, off_t end) {
    char link[64], path[PATH_MAX], filler[PATH_MAX];
    const char *root = getenv("FULL_DIR");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = root ? readlink(link, path, PATH_MAX - 1) : -1;
    if (n < 0) return 0;
    path[n] = 0;
    size_t length = strlen(root);
    snprintf(filler, sizeof filler, "%s/filler", root);
    struct stat st;
    if (strncmp(path, root, length) || path[length] != '/' || access(filler, F_OK) || fstat(fd, &st)) return 0;
    errno = ENOSPC;
    return end > st.st_blocks * 512;
}

static off_t length_of(const struct iovec *v, int count) {
    off_t total = 0;
    for (int i = 0; i < count; i++) total += v[i].iov_len;
    return total;
}

static off_t here(int fd) { return lseek(fd, 0, SEEK_CUR); }

ssize_t write(int fd, const void *data, size_t n) {
    REAL(write);
    return refused(fd, here(fd) + n) ? -1 : real(fd, data, n);
}

ssize_t writev(int fd, const struct iovec *v, int count) {
    REAL(writev);
    return refused(fd, here(fd) + length_of(v, count)) ? -1 : real(fd, v, count);
}

#define PWRITE(name) \
    ssize_t name(int fd, const void *data, size_t n, off_t at) { \
        REAL(name); \
        return refused(fd, at + n) ? -1 : real(fd, data, n, at); }
#define PWRITEV(name) \
    ssize_t name(int fd, const struct iovec *v, int count, off_t at) { \
        REAL(name); \
        return refused(fd, at + length_of(v, count)) ? -1 : real(fd, v, count, at); }
#define ALLOCATE(name) \
    int name(int fd, off_t at, off_t n) { \
        REAL(name); \
        return refused(fd, at + n) ? ENOSPC : real(fd, at, n); }
#define FALLOCATE(name) \
    int name(int fd, int mode, off_t at, off_t n) { \
        REAL(name); \
        return refused(fd, at + n) ? -1 : real(fd, mode, at, n); }

PWRITE(pwrite) PWRITE(pwrite64) PWRITEV(pwritev) PWRITEV(pwritev64)
ALLOCATE(posix_fallocate) ALLOCATE(posix_fallocate64) FALLOCATE(fallocate) FALLOCATE(fallocate64)
