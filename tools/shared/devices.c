/* devices.c -- devices_choose of option_rows.h. */
#include "tools/shared/option_rows.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES_MAX = 64, VISIBLE_MAX = 4096 };

/* Reads the numbers of a list, and returns how many there are; -1: it is not a list, or a number occurs twice. */
static int devices_parse(int numbers[DEVICES_MAX], const char *text) {
    int n = 0;
    for (const char *at = text;; at++) {
        char *end;
        if (!isdigit((unsigned char)*at) || n == DEVICES_MAX) return -1;
        const long number = strtol(at, &end, 10);
        for (int i = 0; i < n; i++)
            if (numbers[i] == (int)number) return -1;
        if (number >= 1 << 20) return -1;
        numbers[n++] = (int)number;
        at = end;
        if (*at == 0) return n;
        if (*at != ',') return -1;
    }
}

/* Returns the entry with this number, counted from 0, of a list that is separated by commas; NULL: the
 * list has fewer. */
static const char *devices_entry(const char *list, int number, int *bytes) {
    for (int i = 0; i < number && list; i++) {
        list = strchr(list, ',');
        if (list) list++;
    }
    *bytes = list ? (int)strcspn(list, ",") : 0;
    return *bytes > 0 ? list : NULL;
}

static enum status devices_show(const int *numbers, int n) {
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    char visible[VISIBLE_MAX];
    size_t used = 0;
    for (int i = 0; i < n; i++) {
        char own[16];
        int bytes = snprintf(own, sizeof own, "%d", numbers[i]);
        const char *entry = list ? devices_entry(list, numbers[i], &bytes) : own;
        if (!entry)
            return fail(STATUS_INVALID, "--devices: GPU %d is requested, and CUDA_VISIBLE_DEVICES is \"%.40s\"",
                        numbers[i], list);
        if (used + (size_t)bytes + 2 > sizeof visible) return fail(STATUS_INVALID, "--devices: the list is too long");
        used += (size_t)snprintf(visible + used, sizeof visible - used, "%s%.*s", i ? "," : "", bytes, entry);
    }
    return setenv("CUDA_VISIBLE_DEVICES", visible, 1) == 0 ? STATUS_OK : fail_errno("CUDA_VISIBLE_DEVICES");
}

enum status devices_choose(struct device_choice *where, const char *text) {
    int numbers[DEVICES_MAX];
    if (!text) return STATUS_OK;
    if (strcmp(where->device, "cpu") == 0)
        return fail(STATUS_INVALID, "--devices are GPUs: leave out --device cpu, or --devices");
    where->device = "cuda";
    where->devices = strcmp(text, "all") == 0 ? -1 : devices_parse(numbers, text);
    if (strcmp(text, "all") == 0) return STATUS_OK;
    if (where->devices < 0)
        return fail(STATUS_INVALID,
                    "--devices takes all, or different numbers of GPUs with commas between them, as 0,1");
    return devices_show(numbers, where->devices);
}
