/* open_once.c -- see open_once.h. */
#include "store/catalog/open_once.h"
#include "base/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TURN_TRIES = 1000 }; /* a millisecond each */

/* Whether a descriptor of the lock file has a lock of this process. A child of fork() has its parent's descriptors,
 * but not its locks. */
static bool descriptor_locks(const char *number) {
    char path[64], line[256];
    bool locks = false;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%.32s", number);
    FILE *info = fopen(path, "re");
    while (info && !locks && fgets(line, sizeof line, info))
        locks = strncmp(line, "lock:", 5) == 0;
    if (info) fclose(info);
    return locks;
}

/* The lock file is open and locked while an environment is open. On read-only media there is no such file, and no lock
 * to release. */
enum status catalog_not_open(const char *store) {
    char locks[FILE_PATH_MAX], link[64];
    struct stat wanted, found;
    TRY(file_join(locks, store, "catalog/lock.mdb"));
    if (stat(locks, &wanted) != 0) return STATUS_OK; /* opening the store reports the error */
    DIR *files = opendir("/proc/self/fd");
    if (!files) return STATUS_OK;
    bool open = false;
    for (struct dirent *d; !open && (d = readdir(files));) {
        if (d->d_name[0] == '.') continue;
        snprintf(link, sizeof link, "/proc/self/fd/%.32s", d->d_name);
        open = stat(link, &found) == 0 && found.st_ino == wanted.st_ino && found.st_dev == wanted.st_dev &&
               descriptor_locks(d->d_name);
    }
    closedir(files);
    if (!open) return STATUS_OK;
    return fail(STATUS_BUSY,
                "%s: this process has the store open: close it first, or make a further view of it (drt_store_view)",
                store);
}

/* An flock belongs to what open() made, so that it also excludes threads of one process. */
int catalog_turn_begin(const char *folder) {
    const int turn = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (turn < 0) return -1;
    for (int i = 0; i < TURN_TRIES && flock(turn, LOCK_EX | LOCK_NB) != 0; i++) {
        if (errno != EWOULDBLOCK && errno != EINTR) break;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return turn;
}

void catalog_turn_end(int turn) {
    if (turn < 0) return;
    flock(turn, LOCK_UN); /* also for a child of fork(), which has the descriptor, too */
    close(turn);
}
