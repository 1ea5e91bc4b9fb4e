/* network.c -- see network.h. */
#include "tools/shared/network.h"
#include "base/file.h"
#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum status network_key_read(char key[NETWORK_KEY_MAX], const char *path) {
    struct stat facts;
    FILE *file = fopen(path, "re");
    if (!file) return fail_errno("%s", path);
    bool good = fstat(fileno(file), &facts) == 0 && fgets(key, NETWORK_KEY_MAX, file);
    fclose(file);
    if (good) key[strcspn(key, "\r\n")] = 0;
    if (!good || strlen(key) < 16 || strlen(key) == NETWORK_KEY_MAX - 1)
        return fail(STATUS_INVALID, "%s: its first line must be a key of 16 to %d bytes", path, NETWORK_KEY_MAX - 2);
    if (facts.st_mode & (S_IRWXG | S_IRWXO))
        return fail(STATUS_INVALID, "%s: others can read this key: run chmod 600 on it", path);
    return STATUS_OK;
}

bool network_is_address(const char *text) {
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    if (getaddrinfo(text, NULL, &hints, &found) != 0) return false;
    freeaddrinfo(found);
    return true;
}

enum status network_port_write(const char *path, int port) {
    char text[16];
    const int n = snprintf(text, sizeof text, "%d\n", port);
    return file_save(path, text, (size_t)n);
}

/* The id of the main thread is that of the process. */
static void network_signal_pass(int signal) {
    const int error = errno;
    (void)syscall(SYS_tgkill, getpid(), getpid(), signal);
    errno = error;
}

void network_signals_block(sigset_t *set) {
    const struct sigaction pass = {.sa_handler = network_signal_pass, .sa_flags = SA_RESTART};
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    pthread_sigmask(SIG_BLOCK, set, NULL);
    (void)sigaction(SIGTERM, &pass, NULL);
    (void)sigaction(SIGINT, &pass, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
}

const char *worker_options_wrong(const struct worker_options *o) {
    return !o->addresses && (o->key_file || o->timeout) ? "--worker-key-file and --worker-timeout need --workers"
                                                        : NULL;
}

enum status worker_options_remote(struct slices_remote *out, char key[NETWORK_KEY_MAX],
                                  const struct worker_options *o) {
    *out = (struct slices_remote){.addresses = o->addresses, .timeout = (int)o->timeout};
    if (!o->key_file) return STATUS_OK;
    TRY(network_key_read(key, o->key_file));
    out->key = key;
    return STATUS_OK;
}
