/* Preloaded into a process (LD_PRELOAD), this library sees every change that the process makes below a folder, also those
 * of DuckDB: write, fsync, rename, unlink, rmdir and mkdir. At a chosen one the process dies as by `kill -9`.
 *
 * The state of the disk after one change is that before the next, so dying before each of them covers both. A write may
 * also be torn: half of its bytes are written first.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static char watched[PATH_MAX];
static int chosen, torn, log_fd = -1;
static atomic_int calls;

/* Watch a folder; die before the change of this number (0: never). If `log` is not NULL, list all changes there. */
void faults_arm(const char *folder, int number, int tear, const char *log) {
    strncpy(watched, folder, sizeof watched - 1);
    chosen = number;
    torn = tear;
    if (log) log_fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0644);
}

/* Count a change; returns 1 if the process must die now. */
static int reached(const char *kind, const char *path) {
    if (!watched[0] || strncmp(path, watched, strlen(watched)) != 0) return 0;
    int number = atomic_fetch_add(&calls, 1) + 1;
    if (log_fd >= 0) dprintf(log_fd, "%s %s\n", kind, path + strlen(watched));
    return number == chosen;
}

static void die(void) { kill(getpid(), SIGKILL); }

static int reached_fd(const char *kind, int fd) {
    char link[64], path[PATH_MAX];
    if (!watched[0] || fd == log_fd) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return reached(kind, path);
}

static int reached_at(const char *kind, int folder, const char *name) {
    char link[64], path[PATH_MAX];
    if (name[0] == '/' || folder == AT_FDCWD) return reached(kind, name);
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    snprintf(path + length, sizeof path - length, "/%s", name);
    return reached(kind, path);
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

ssize_t write(int fd, const void *bytes, size_t count) {
    REAL(ssize_t, "write", int, const void *, size_t);
    if (reached_fd("write", fd)) { if (torn) real(fd, bytes, count / 2); die(); }
    return real(fd, bytes, count);
}
ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    REAL(ssize_t, "pwrite", int, const void *, size_t, off_t);
    if (reached_fd("write", fd)) { if (torn) real(fd, bytes, count / 2, at); die(); }
    return real(fd, bytes, count, at);
}
ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    if (reached_fd("write", fd)) { if (torn) real(fd, bytes, count / 2, at); die(); }
    return real(fd, bytes, count, at);
}
int fsync(int fd) {
    REAL(int, "fsync", int);
    if (reached_fd("fsync", fd)) die();
    return real(fd);
}
int fdatasync(int fd) {
    REAL(int, "fdatasync", int);
    if (reached_fd("fsync", fd)) die();
    return real(fd);
}
int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    if (reached("rename", to)) die();
    return real(from, to);
}
int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    REAL(int, "renameat", int, const char *, int, const char *);
    if (reached_at("rename", to_folder, to)) die();
    return real(from_folder, from, to_folder, to);
}
int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    if (reached("unlink", path)) die();
    return real(path);
}
int unlinkat(int folder, const char *path, int flags) {
    REAL(int, "unlinkat", int, const char *, int);
    if (reached_at("unlink", folder, path)) die();
    return real(folder, path, flags);
}
int rmdir(const char *path) {
    REAL(int, "rmdir", const char *);
    if (reached("rmdir", path)) die();
    return real(path);
}
int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t);
    if (reached("mkdir", path)) die();
    return real(path, mode);
}
