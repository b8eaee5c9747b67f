/* Journals what a process does to the files under one directory, for test_power_loss.py.
 *
 * LD_PRELOAD this; KAYOS_POWER_ROOT is the path prefix to watch, KAYOS_POWER_JOURNAL the journal. An entry is
 * written before data reach the kernel (from then on they may reach the disk) and after a sync returned (from then
 * on what the sync covers is safe). Layout of an entry, native byte order:
 *
 *     op u8 | fd i32 | number i64 | length u64 | bytes
 *
 *     O open: number = flags, bytes = path          C close
 *     W write: number = offset, bytes = data        D the write before returned, on a descriptor with O_DSYNC
 *     S a sync begins: number = its id              F it returned without error
 *     T truncate: number = size                     R rename: bytes = old path, NUL, new path
 *     M mkdir · U unlink · X rmdir: bytes = path
 *
 * What a store has no reason to call (links, fallocate, writable shared maps other than the lock file's) is not
 * journalled; the test compares the journal's end with the real files, so that nothing can slip by.
 */
#define _GNU_SOURCE
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
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define FDS 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_length;
static int journal = -1;
static int flags_of[FDS]; /* open flags + 1 of a watched descriptor, 0 for any other */
static int64_t syncs;

static void put_raw(const void *bytes, size_t length)
{
    const char *at = bytes;
    while (length > 0) {
        ssize_t done = syscall(SYS_write, journal, at, length);
        if (done <= 0)
            abort();
        at += done;
        length -= (size_t)done;
    }
}

static void note2(char op, int fd, int64_t number, const void *one, size_t one_length, const void *two, size_t two_length)
{
    char head[1 + 4 + 8 + 8];
    int32_t fd32 = fd;
    uint64_t length = one_length + two_length;
    head[0] = op;
    memcpy(head + 1, &fd32, 4);
    memcpy(head + 5, &number, 8);
    memcpy(head + 13, &length, 8);
    pthread_mutex_lock(&lock);
    put_raw(head, sizeof head);
    put_raw(one, one_length);
    put_raw(two, two_length);
    pthread_mutex_unlock(&lock);
}

static void note(char op, int fd, int64_t number, const void *bytes, size_t length)
{
    note2(op, fd, number, bytes, length, NULL, 0);
}

__attribute__((constructor)) static void begin(void)
{
    const char *watched = getenv("KAYOS_POWER_ROOT"), *path = getenv("KAYOS_POWER_JOURNAL");
    if (!watched || !path)
        return;
    root_length = strlen(watched);
    memcpy(root, watched, root_length + 1);
    journal = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (journal < 0)
        abort();
}

/* The absolute path behind (dirfd, path), when it is watched. */
static int watched_path(int dirfd, const char *path, char *full)
{
    if (journal < 0 || !path)
        return 0;
    if (path[0] == '/') {
        snprintf(full, PATH_MAX, "%s", path);
    } else {
        char base[PATH_MAX], proc[64];
        ssize_t length;
        if (dirfd == AT_FDCWD)
            snprintf(proc, sizeof proc, "/proc/self/cwd");
        else
            snprintf(proc, sizeof proc, "/proc/self/fd/%d", dirfd);
        length = readlink(proc, base, sizeof base - 1);
        if (length < 0)
            return 0;
        base[length] = 0;
        if ((size_t)snprintf(full, PATH_MAX, "%s/%s", base, path) >= PATH_MAX)
            abort();
    }
    return strncmp(full, root, root_length) == 0;
}

static int is_watched(int fd)
{
    return journal >= 0 && fd >= 0 && fd < FDS && flags_of[fd];
}

/* Opening */

static int open_at(int dirfd, const char *path, int flags, mode_t mode)
{
    char full[PATH_MAX];
    int watched = watched_path(dirfd, path, full), fd;
    fd = (int)syscall(SYS_openat, dirfd, path, flags | O_LARGEFILE, mode);
    if (fd >= 0 && fd < FDS)
        flags_of[fd] = 0;
    if (fd >= 0 && watched) {
        if (fd >= FDS)
            abort();
        note('O', fd, flags, full, strlen(full));
        flags_of[fd] = flags + 1;
    }
    return fd;
}

#define MODE                                                  \
    mode_t mode = 0;                                          \
    if (flags & (O_CREAT | O_TMPFILE)) {                      \
        va_list rest;                                         \
        va_start(rest, flags);                                \
        mode = va_arg(rest, mode_t);                          \
        va_end(rest);                                         \
    }

int open(const char *path, int flags, ...) { MODE return open_at(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE return open_at(AT_FDCWD, path, flags, mode); }
int openat(int dirfd, const char *path, int flags, ...) { MODE return open_at(dirfd, path, flags, mode); }
int openat64(int dirfd, const char *path, int flags, ...) { MODE return open_at(dirfd, path, flags, mode); }
int __open_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }

int close(int fd)
{
    if (is_watched(fd)) {
        note('C', fd, 0, NULL, 0);
        flags_of[fd] = 0;
    }
    return (int)syscall(SYS_close, fd);
}

/* Writing */

static ssize_t done(int fd, ssize_t result)
{
    int saved = errno;
    if (result >= 0 && is_watched(fd) && (flags_of[fd] - 1) & O_DSYNC)
        note('D', fd, 0, NULL, 0);
    errno = saved;
    return result;
}

static int64_t position_of(int fd)
{
    struct stat info;
    if ((flags_of[fd] - 1) & O_APPEND)
        return fstat(fd, &info) == 0 ? info.st_size : -1;
    return lseek(fd, 0, SEEK_CUR);
}

ssize_t write(int fd, const void *bytes, size_t length)
{
    if (is_watched(fd))
        note('W', fd, position_of(fd), bytes, length);
    return done(fd, syscall(SYS_write, fd, bytes, length));
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset)
{
    if (is_watched(fd))
        note('W', fd, offset, bytes, length);
    return done(fd, syscall(SYS_pwrite64, fd, bytes, length, offset));
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) { return pwrite(fd, bytes, length, offset); }

static void note_vector(int fd, const struct iovec *parts, int count, int64_t offset)
{
    for (int index = 0; index < count; index++) {
        note('W', fd, offset, parts[index].iov_base, parts[index].iov_len);
        offset += (int64_t)parts[index].iov_len;
    }
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    if (is_watched(fd))
        note_vector(fd, parts, count, position_of(fd));
    return done(fd, syscall(SYS_writev, fd, parts, count));
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset)
{
    if (is_watched(fd))
        note_vector(fd, parts, count, offset);
    return done(fd, syscall(SYS_pwritev, fd, parts, count, offset, 0));
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset)
{
    return pwritev(fd, parts, count, offset);
}

int ftruncate(int fd, off_t size)
{
    if (is_watched(fd))
        note('T', fd, size, NULL, 0);
    return (int)syscall(SYS_ftruncate, fd, size);
}

int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

/* Syncing */

static int sync_with(long call, int fd)
{
    int64_t id;
    int result, saved;
    if (!is_watched(fd))
        return (int)syscall(call, fd);
    id = __sync_add_and_fetch(&syncs, 1);
    note('S', fd, id, NULL, 0);
    result = (int)syscall(call, fd);
    saved = errno;
    if (result == 0)
        note('F', fd, id, NULL, 0);
    errno = saved;
    return result;
}

int fsync(int fd) { return sync_with(SYS_fsync, fd); }
int fdatasync(int fd) { return sync_with(SYS_fdatasync, fd); }

/* Names */

static int rename_at(int old_fd, const char *old_path, int new_fd, const char *new_path, unsigned flags)
{
    char old_full[PATH_MAX], new_full[PATH_MAX];
    int old_watched = watched_path(old_fd, old_path, old_full);
    int watched = watched_path(new_fd, new_path, new_full) || old_watched;
    int result = (int)syscall(SYS_renameat2, old_fd, old_path, new_fd, new_path, flags), saved = errno;
    if (result == 0 && watched)
        note2('R', -1, flags, old_full, strlen(old_full) + 1, new_full, strlen(new_full));
    errno = saved;
    return result;
}

int rename(const char *old_path, const char *new_path) { return rename_at(AT_FDCWD, old_path, AT_FDCWD, new_path, 0); }

int renameat(int old_fd, const char *old_path, int new_fd, const char *new_path)
{
    return rename_at(old_fd, old_path, new_fd, new_path, 0);
}

int renameat2(int old_fd, const char *old_path, int new_fd, const char *new_path, unsigned flags)
{
    return rename_at(old_fd, old_path, new_fd, new_path, flags);
}

static int named(char op, long call, int dirfd, const char *path, int argument)
{
    char full[PATH_MAX];
    int watched = watched_path(dirfd, path, full);
    int result = (int)syscall(call, dirfd, path, argument), saved = errno;
    if (result == 0 && watched)
        note(op, -1, argument, full, strlen(full));
    errno = saved;
    return result;
}

int mkdir(const char *path, mode_t mode) { return named('M', SYS_mkdirat, AT_FDCWD, path, (int)mode); }
int mkdirat(int dirfd, const char *path, mode_t mode) { return named('M', SYS_mkdirat, dirfd, path, (int)mode); }
int unlink(const char *path) { return named('U', SYS_unlinkat, AT_FDCWD, path, 0); }
int rmdir(const char *path) { return named('X', SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR); }

int unlinkat(int dirfd, const char *path, int flags)
{
    return named(flags & AT_REMOVEDIR ? 'X' : 'U', SYS_unlinkat, dirfd, path, flags);
}
