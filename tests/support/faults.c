/* Lets the n-th call of one kind fail: loaded with LD_PRELOAD, armed from Python through ctypes.
   Writes, syncs and renames count where they concern the armed folder; allocations where they are large.
   A clock jumps at the n-th sync, by as many seconds as the error's number says. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { NONE, WRITE, SYNC, RENAME, ALLOCATION, CLOCK };
static const size_t LARGE = 20000;
/* NumPy 2.4 crashes where the buffer of 32 or 64 KiB that it casts in (int8 * float64) cannot be allocated. */
static const size_t CASTS = 1 << 15;

static char folder[PATH_MAX];
static atomic_int armed; /* the kind */
static atomic_long calls, fatal, jumped;
static int reason;

void faults_arm(const char *path, int kind, long nth, int error) {
    snprintf(folder, sizeof folder, "%s", path);
    calls = 0;
    fatal = nth;
    reason = error;
    armed = kind;
}

long faults_disarm(void) { /* how many such calls there were */
    armed = NONE;
    return calls;
}

static int fails(int kind) {
    if (armed != kind || ++calls != fatal) return 0;
    errno = reason;
    return 1;
}

static int no_memory(size_t size) { return size > LARGE && size % CASTS && fails(ALLOCATION); }

static int inside(const char *path) { return strncmp(path, folder, strlen(folder)) == 0; }

static int concerns(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return inside(path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *data, size_t size) {
    if (armed == WRITE && concerns(fd) && fails(WRITE)) {
        REAL(write)(fd, data, size / 2); /* a full disk takes a part */
        errno = reason;
        return -1;
    }
    return REAL(write)(fd, data, size);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    return armed == WRITE && concerns(fd) && fails(WRITE) ? -1 : REAL(writev)(fd, parts, count);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
    return armed == WRITE && concerns(fd) && fails(WRITE) ? -1 : REAL(pwrite64)(fd, data, size, offset);
}

int fsync(int fd) {
    if (armed == CLOCK && concerns(fd) && fails(CLOCK)) jumped = reason;
    return armed == SYNC && concerns(fd) && fails(SYNC) ? -1 : REAL(fsync)(fd);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = REAL(clock_gettime)(clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec += jumped;
    return result;
}

int rename(const char *from, const char *to) {
    return armed == RENAME && inside(to) && fails(RENAME) ? -1 : REAL(rename)(from, to);
}

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

void *malloc(size_t size) { return no_memory(size) ? NULL : __libc_malloc(size); }

void *calloc(size_t count, size_t size) {
    return no_memory(count * size) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) {
    return no_memory(size) ? NULL : __libc_realloc(old, size);
}

int posix_memalign(void **result, size_t alignment, size_t size) {
    if (no_memory(size)) return ENOMEM;
    *result = __libc_memalign(alignment, size);
    return *result ? 0 : ENOMEM;
}
