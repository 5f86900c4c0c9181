/* A recorder for LD_PRELOAD: what a process does to the files below one directory, in order.
 *
 *   RECORD_DIR=/dev/shm/x RECORD_LOG=/tmp/log LD_PRELOAD=./shim.so python ...
 *
 * Each call is carried out and then logged under one lock, so the log is the order in which things happened. Files and
 * directories go by their inode numbers, because names change. One entry is, in the machine's byte order,
 *
 *   u64 kind, u64 inode, u64 offset, u64 other, u64 length, then `length` bytes
 *
 *   W write           inode, offset, other = 1 if the descriptor is O_DSYNC, data
 *   T truncate        inode, offset = new size
 *   A allocate        inode, offset = least size afterwards
 *   S sync            inode (of a file or of a directory)
 *   C create          inode of the directory, other = inode of the new file, name
 *   D make directory  inode of the directory, other = inode of the new directory, name
 *   R rename          inode of the old directory, other = inode of the new one, old name NUL new name
 *   U unlink, rmdir   inode of the directory, name
 *   M msync           nothing: a store through a map is not seen here, so the reader of the log must refuse this
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int log_fd = -1;

static int below(const char *path) {
    const char *root = getenv("RECORD_DIR");
    size_t n = root ? strlen(root) : 0;
    return n && !strncmp(path, root, n) && (path[n] == '/' || !path[n]);
}

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    path[n < 0 ? 0 : n] = 0;
    return n > 0;
}

static int watched(int fd) {
    char path[PATH_MAX];
    return path_of(fd, path) && below(path);
}

/* The absolute form of a name relative to a directory descriptor; 0 if it is none of our business. */
static int resolve(int dir, const char *name, char *path) {
    char base[PATH_MAX] = "";
    if (name[0] != '/' && !(dir == AT_FDCWD ? getcwd(base, sizeof base) != NULL : path_of(dir, base))) return 0;
    if (snprintf(path, PATH_MAX, "%s%s%s", base, name[0] == '/' ? "" : "/", name) >= PATH_MAX) return 0;
    return below(path);
}

static uint64_t inode_of(const char *path) {
    struct stat st;
    return lstat(path, &st) ? 0 : st.st_ino;
}

static uint64_t parent_of(const char *path) {
    char parent[PATH_MAX];
    strcpy(parent, path);
    *strrchr(parent, '/') = 0;
    return inode_of(parent);
}

static const char *last(const char *path) { return strrchr(path, '/') + 1; }

static void put(const void *data, size_t n) {
    for (const char *at = data; n;) {
        long done = syscall(SYS_write, log_fd, at, n);
        if (done <= 0) abort();
        at += done, n -= done;
    }
}

static void note(char kind, uint64_t inode, uint64_t offset, uint64_t other, const void *data, size_t n) {
    int before = errno;
    if (log_fd < 0) log_fd = syscall(SYS_openat, AT_FDCWD, getenv("RECORD_LOG"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    uint64_t head[5] = {(uint64_t)kind, inode, offset, other, n};
    put(head, sizeof head);
    put(data, n);
    errno = before;
}

static void note_fd(char kind, int fd, uint64_t offset, const void *data, size_t n) {
    struct stat st;
    if (!fstat(fd, &st)) note(kind, st.st_ino, offset, (fcntl(fd, F_GETFL) & O_DSYNC) != 0, data, n);
}

static off_t place(int fd) {
    struct stat st;
    return fcntl(fd, F_GETFL) & O_APPEND && !fstat(fd, &st) ? st.st_size : lseek(fd, 0, SEEK_CUR);
}

/* Call, then log if it worked; `result` is what the call returned. */
#define RECORDED(type, fd, call, good, logged) \
    if (!watched(fd)) return call;             \
    pthread_mutex_lock(&lock);                 \
    type result = call;                        \
    if (good) logged;                          \
    pthread_mutex_unlock(&lock);               \
    return result

static void note_vector(int fd, const struct iovec *v, int count, off_t at, ssize_t done) {
    for (int i = 0; i < count && done > 0; i++) {
        size_t n = (size_t)done < v[i].iov_len ? (size_t)done : v[i].iov_len;
        note_fd('W', fd, at, v[i].iov_base, n);
        at += n, done -= n;
    }
}

ssize_t write(int fd, const void *data, size_t n) {
    REAL(write);
    off_t at = watched(fd) ? place(fd) : 0;
    RECORDED(ssize_t, fd, real(fd, data, n), result > 0, note_fd('W', fd, at, data, result));
}

ssize_t writev(int fd, const struct iovec *v, int count) {
    REAL(writev);
    off_t at = watched(fd) ? place(fd) : 0;
    RECORDED(ssize_t, fd, real(fd, v, count), result > 0, note_vector(fd, v, count, at, result));
}

#define PWRITE(name) \
    ssize_t name(int fd, const void *data, size_t n, off_t at) { \
        REAL(name); \
        RECORDED(ssize_t, fd, real(fd, data, n, at), result > 0, note_fd('W', fd, at, data, result)); }
#define PWRITEV(name) \
    ssize_t name(int fd, const struct iovec *v, int count, off_t at) { \
        REAL(name); \
        RECORDED(ssize_t, fd, real(fd, v, count, at), result > 0, note_vector(fd, v, count, at, result)); }
#define TRUNCATE(name) \
    int name(int fd, off_t size) { \
        REAL(name); \
        RECORDED(int, fd, real(fd, size), result == 0, note_fd('T', fd, size, "", 0)); }
#define ALLOCATE(name) \
    int name(int fd, off_t at, off_t n) { \
        REAL(name); \
        RECORDED(int, fd, real(fd, at, n), result == 0, note_fd('A', fd, at + n, "", 0)); }
#define FALLOCATE(name) \
    int name(int fd, int mode, off_t at, off_t n) { \
        REAL(name); \
        RECORDED(int, fd, real(fd, mode, at, n), result == 0 && mode == 0, note_fd('A', fd, at + n, "", 0)); }
#define SYNC(name) \
    int name(int fd) { \
        REAL(name); \
        RECORDED(int, fd, real(fd), result == 0, note_fd('S', fd, 0, "", 0)); }

PWRITE(pwrite) PWRITE(pwrite64) PWRITEV(pwritev) PWRITEV(pwritev64) TRUNCATE(ftruncate) TRUNCATE(ftruncate64)
ALLOCATE(posix_fallocate) ALLOCATE(posix_fallocate64) FALLOCATE(fallocate) FALLOCATE(fallocate64)
SYNC(fsync) SYNC(fdatasync)

int msync(void *at, size_t n, int flags) {
    REAL(msync);
    note('M', 0, 0, 0, "", 0);
    return real(at, n, flags);
}

static int open_recorded(int dir, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    if (!(flags & (O_CREAT | O_TRUNC)) || (flags & O_TMPFILE) == O_TMPFILE || !resolve(dir, name, path))
        return syscall(SYS_openat, dir, name, flags, mode);
    pthread_mutex_lock(&lock);
    uint64_t before = inode_of(path);
    int fd = syscall(SYS_openat, dir, name, flags, mode);
    if (fd >= 0 && !before) note('C', parent_of(path), 0, inode_of(path), last(path), strlen(last(path)));
    if (fd >= 0 && before && flags & O_TRUNC) note_fd('T', fd, 0, "", 0);
    pthread_mutex_unlock(&lock);
    return fd;
}

#define MODE \
    va_list more; \
    va_start(more, flags); \
    mode_t mode = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(more, mode_t) : 0; \
    va_end(more)
#define OPEN(name) int name(const char *path, int flags, ...) { MODE; return open_recorded(AT_FDCWD, path, flags, mode); }
#define OPENAT(name) int name(int dir, const char *path, int flags, ...) { MODE; return open_recorded(dir, path, flags, mode); }
OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64)

static int mkdir_recorded(int dir, const char *name, mode_t mode) {
    char path[PATH_MAX];
    if (!resolve(dir, name, path)) return syscall(SYS_mkdirat, dir, name, mode);
    pthread_mutex_lock(&lock);
    int result = syscall(SYS_mkdirat, dir, name, mode);
    if (!result) note('D', parent_of(path), 0, inode_of(path), last(path), strlen(last(path)));
    pthread_mutex_unlock(&lock);
    return result;
}

static int unlink_recorded(int dir, const char *name, int flags) {
    char path[PATH_MAX];
    if (!resolve(dir, name, path)) return syscall(SYS_unlinkat, dir, name, flags);
    pthread_mutex_lock(&lock);
    int result = syscall(SYS_unlinkat, dir, name, flags);
    if (!result) note('U', parent_of(path), 0, 0, last(path), strlen(last(path)));
    pthread_mutex_unlock(&lock);
    return result;
}

static int rename_recorded(int from, const char *old, int to, const char *new, unsigned flags) {
    char a[PATH_MAX], b[PATH_MAX], names[2 * PATH_MAX];
    if (!resolve(from, old, a) || !resolve(to, new, b)) return syscall(SYS_renameat2, from, old, to, new, flags);
    pthread_mutex_lock(&lock);
    int result = syscall(SYS_renameat2, from, old, to, new, flags);
    size_t n = strlen(last(a)) + 1;
    memcpy(names, last(a), n);
    strcpy(names + n, last(b));
    if (!result) note('R', parent_of(a), 0, parent_of(b), names, n + strlen(last(b)));
    pthread_mutex_unlock(&lock);
    return result;
}

int mkdir(const char *path, mode_t mode) { return mkdir_recorded(AT_FDCWD, path, mode); }
int mkdirat(int dir, const char *path, mode_t mode) { return mkdir_recorded(dir, path, mode); }
int unlink(const char *path) { return unlink_recorded(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlink_recorded(AT_FDCWD, path, AT_REMOVEDIR); }
int unlinkat(int dir, const char *path, int flags) { return unlink_recorded(dir, path, flags); }
int rename(const char *a, const char *b) { return rename_recorded(AT_FDCWD, a, AT_FDCWD, b, 0); }
int renameat(int x, const char *a, int y, const char *b) { return rename_recorded(x, a, y, b, 0); }
int renameat2(int x, const char *a, int y, const char *b, unsigned flags) { return rename_recorded(x, a, y, b, flags); }
