/* A layer between a program and its disk, loaded with LD_PRELOAD.
 *
 * Only files below DISK_ROOT are concerned. DISK_CONTROL names a file that is shared with the test: delays and
 * errors of the calls to come, and the second at which the clock stands. With DISK_LOG every change of a file, and every sync, is
 * appended to that file in the order in which it took effect:
 *
 *     kind (1 byte), length of the path (4), length of the data (4), offset (8), path, data
 *
 * C create, W write, T set the length, S sync, R rename (the data is the new path), U unlink, M make a folder,
 * L link (the data is the new path).
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
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct control {
    volatile int32_t sync_delay_ms;
    volatile int32_t sync_error;
    volatile int32_t write_error;
    volatile int32_t clock_second;
};

static struct control none;
static struct control *control = &none;
static char root[PATH_MAX];
static size_t root_length;
static int log_fd = -1;
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void prepare(void) {
    const char *name = getenv("DISK_ROOT");
    if (name && realpath(name, root))
        root_length = strlen(root);
    name = getenv("DISK_CONTROL");
    if (name) {
        int fd = syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CLOEXEC, 0);
        if (fd >= 0) {
            void *shared = mmap(NULL, sizeof(struct control), PROT_READ, MAP_SHARED, fd, 0);
            if (shared != MAP_FAILED)
                control = shared;
            syscall(SYS_close, fd);
        }
    }
    name = getenv("DISK_LOG");
    if (name)
        log_fd = syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_APPEND | O_CLOEXEC, 0);
    /* The programs that this one starts have disks of their own. */
    unsetenv("LD_PRELOAD");
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static int is_below(const char *path) {
    return root_length && strncmp(path, root, root_length) == 0 &&
           (path[root_length] == '/' || path[root_length] == 0);
}

/* Finds the path of an open file below the root. */
static int path_of(int fd, char *path) {
    if (!root_length)
        return 0;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    if (length <= 0)
        return 0;
    path[length] = 0;
    return is_below(path);
}

/* Makes a path absolute. Programs under test pass absolute ones, or ones from their folder. */
static int path_from(const char *name, char *path) {
    if (!root_length)
        return 0;
    if (name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
    } else {
        char folder[PATH_MAX / 2];
        if (!getcwd(folder, sizeof folder))
            return 0;
        snprintf(path, PATH_MAX, "%s/%s", folder, name);
    }
    return is_below(path);
}

static void begin(void) {
    if (log_fd >= 0)
        pthread_mutex_lock(&order);
}

static void end(void) {
    if (log_fd >= 0) {
        int saved = errno;
        pthread_mutex_unlock(&order);
        errno = saved;
    }
}

static void note(char kind, const char *path, uint64_t offset, const struct iovec *parts, int count, size_t length) {
    if (log_fd < 0)
        return;
    int saved = errno;
    uint32_t path_length = strlen(path), data_length = length;
    size_t all = 17 + path_length + length;
    char *record = malloc(all), *at = record;
    if (!record)
        abort();
    *at++ = kind;
    memcpy(at, &path_length, 4), at += 4;
    memcpy(at, &data_length, 4), at += 4;
    memcpy(at, &offset, 8), at += 8;
    memcpy(at, path, path_length), at += path_length;
    for (int i = 0; i < count && length; i++) {
        size_t part = parts[i].iov_len < length ? parts[i].iov_len : length;
        memcpy(at, parts[i].iov_base, part), at += part;
        length -= part;
    }
    /* One call for each record, since the test appends to the log too. */
    if (syscall(SYS_write, log_fd, record, all) != (long)all)
        abort();
    free(record);
    errno = saved;
}

static void note_text(char kind, const char *path, const char *text) {
    struct iovec part = {(void *)text, strlen(text)};
    note(kind, path, 0, &part, 1, part.iov_len);
}

static int refuses_writes(void) {
    if (!control->write_error)
        return 0;
    errno = control->write_error;
    return 1;
}

/* Writes. */

static void noted_write(const char *path, int fd, off64_t offset, const struct iovec *parts, int count, ssize_t written) {
    if (written <= 0 || log_fd < 0)
        return;
    if (offset < 0) {
        /* The place of the file, which the call has moved. */
        offset = lseek64(fd, 0, SEEK_CUR) - written;
    }
    note('W', path, offset, parts, count, written);
}

ssize_t write(int fd, const void *bytes, size_t count) {
    REAL(write);
    char path[PATH_MAX];
    if (!path_of(fd, path))
        return real(fd, bytes, count);
    if (refuses_writes())
        return -1;
    begin();
    ssize_t written = real(fd, bytes, count);
    struct iovec part = {(void *)bytes, count};
    noted_write(path, fd, -1, &part, 1, written);
    end();
    return written;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    char path[PATH_MAX];
    if (!path_of(fd, path))
        return real(fd, parts, count);
    if (refuses_writes())
        return -1;
    begin();
    ssize_t written = real(fd, parts, count);
    noted_write(path, fd, -1, parts, count, written);
    end();
    return written;
}

#define PWRITE(name, offset_t) \
    ssize_t name(int fd, const void *bytes, size_t count, offset_t offset) { \
        REAL(name); \
        char path[PATH_MAX]; \
        if (!path_of(fd, path)) \
            return real(fd, bytes, count, offset); \
        if (refuses_writes()) \
            return -1; \
        begin(); \
        ssize_t written = real(fd, bytes, count, offset); \
        struct iovec part = {(void *)bytes, count}; \
        noted_write(path, fd, offset, &part, 1, written); \
        end(); \
        return written; \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

/* Data that is copied by the kernel cannot be recorded; programs fall back to reads and writes. */
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t count, unsigned flags) {
    REAL(copy_file_range);
    char path[PATH_MAX];
    if (!path_of(out, path))
        return real(in, from, out, to, count, flags);
    errno = ENOSYS;
    return -1;
}

ssize_t sendfile64(int out, int in, off64_t *from, size_t count) {
    REAL(sendfile64);
    char path[PATH_MAX];
    if (!path_of(out, path))
        return real(out, in, from, count);
    errno = ENOSYS;
    return -1;
}

#define TRUNCATE(name, offset_t) \
    int name(int fd, offset_t length) { \
        REAL(name); \
        char path[PATH_MAX]; \
        if (!path_of(fd, path)) \
            return real(fd, length); \
        struct stat now; \
        if (fstat(fd, &now) == 0 && length > now.st_size && refuses_writes()) \
            return -1; \
        begin(); \
        int done = real(fd, length); \
        if (done == 0) \
            note('T', path, length, NULL, 0, 0); \
        end(); \
        return done; \
    }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

#define FALLOCATE(name, offset_t) \
    int name(int fd, offset_t offset, offset_t length) { \
        REAL(name); \
        char path[PATH_MAX]; \
        if (!path_of(fd, path)) \
            return real(fd, offset, length); \
        return control->write_error ? control->write_error : EOPNOTSUPP; \
    }
FALLOCATE(posix_fallocate, off_t)
FALLOCATE(posix_fallocate64, off64_t)

/* Syncs. */

#define SYNC(name) \
    int name(int fd) { \
        REAL(name); \
        char path[PATH_MAX]; \
        if (!path_of(fd, path)) \
            return real(fd); \
        int delay = control->sync_delay_ms; \
        if (delay > 0) { \
            struct timespec pause = {delay / 1000, (delay % 1000) * 1000000L}; \
            nanosleep(&pause, NULL); \
        } \
        if (control->sync_error) { \
            errno = control->sync_error; \
            return -1; \
        } \
        begin(); \
        int done = real(fd); \
        if (done == 0) \
            note('S', path, 0, NULL, 0, 0); \
        end(); \
        return done; \
    }
SYNC(fsync)
SYNC(fdatasync)

/* Names. */

static int opened(const char *name, int flags, mode_t mode, int (*real)(const char *, int, ...)) {
    char path[PATH_MAX];
    if (!(flags & (O_CREAT | O_TRUNC)) || !path_from(name, path))
        return real(name, flags, mode);
    struct stat before;
    begin();
    int is_new = syscall(SYS_newfstatat, AT_FDCWD, path, &before, 0) != 0;
    if (is_new && refuses_writes()) {
        end();
        return -1;
    }
    int fd = real(name, flags, mode);
    if (fd >= 0 && is_new)
        note('C', path, 0, NULL, 0, 0);
    else if (fd >= 0 && (flags & O_TRUNC))
        note('T', path, 0, NULL, 0, 0);
    end();
    return fd;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = va_arg(rest, mode_t); \
        va_end(rest); \
        return opened(path, flags, mode, (int (*)(const char *, int, ...))real); \
    }
OPEN(open)
OPEN(open64)

#define PAIR(name, kind) \
    int name(const char *from, const char *to) { \
        REAL(name); \
        char old[PATH_MAX], new[PATH_MAX]; \
        if (!path_from(from, old) || !path_from(to, new)) \
            return real(from, to); \
        begin(); \
        int done = real(from, to); \
        if (done == 0) \
            note_text(kind, old, new); \
        end(); \
        return done; \
    }
PAIR(rename, 'R')
PAIR(link, 'L')

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags) {
    REAL(linkat);
    char old[PATH_MAX], new[PATH_MAX];
    if (!path_from(from, old) || !path_from(to, new))
        return real(from_fd, from, to_fd, to, flags);
    begin();
    int done = real(from_fd, from, to_fd, to, flags);
    if (done == 0)
        note_text('L', old, new);
    end();
    return done;
}

int unlink(const char *name) {
    REAL(unlink);
    char path[PATH_MAX];
    if (!path_from(name, path))
        return real(name);
    begin();
    int done = real(name);
    if (done == 0)
        note('U', path, 0, NULL, 0, 0);
    end();
    return done;
}

int mkdir(const char *name, mode_t mode) {
    REAL(mkdir);
    char path[PATH_MAX];
    if (!path_from(name, path))
        return real(name, mode);
    if (refuses_writes())
        return -1;
    begin();
    int done = real(name, mode);
    if (done == 0)
        note('M', path, 0, NULL, 0, 0);
    end();
    return done;
}

/* The clock of the wall; intervals are measured with others. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(clock_gettime);
    int done = real(clock, now);
    if (done == 0 && clock == CLOCK_REALTIME && control->clock_second) {
        now->tv_sec = control->clock_second;
        now->tv_nsec = 0;
    }
    return done;
}
