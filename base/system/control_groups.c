/* control_groups.c -- see control_groups.h. /proc/self/cgroup lists the groups of the process, and /proc/self/mountinfo
 * the folders of their files. In a container, the container's group is the outermost one. */
#include "base/system/control_groups.h"
#include "base/file.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 2 * FILE_PATH_MAX };

/* Whether a comma-separated list contains this word. */
static bool has_word(const char *list, const char *word) {
    size_t n = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, word, n) == 0 && (at[n] == ',' || !at[n])) return true;
    return false;
}

/* Buffers. They are on the heap, because a stack may be small (ulimit -s). */
struct paths {
    char line[LINE], group[LINE], at[LINE], top[LINE], folder[LINE];
};

static FILE *open_under(const char *root, const char *folder, const char *name) {
    char whole[LINE];
    int n = snprintf(whole, sizeof whole, "%s%s/%s", root, folder, name);
    return n > 0 && n < LINE ? fopen(whole, "re") : NULL;
}

/* Finds the path of the process's group: that of version 2, or that of the version 1 hierarchy with this controller.
 * Lines have the form "number:words:path". */
static bool find_group(struct paths *p, const char *root, const char *controller, bool second) {
    bool found = false;
    FILE *file = open_under(root, "/proc/self", "cgroup");
    while (file && !found && fgets(p->line, sizeof p->line, file)) {
        char *words = strchr(p->line, ':'), *path = words ? strchr(words + 1, ':') : NULL;
        if (!path) continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        found = second ? !words[1] : has_word(words + 1, controller);
        if (found) memcpy(p->group, path, strlen(path) + 1);
    }
    if (file) fclose(file);
    return found;
}

/* Finds where that hierarchy is mounted, and which of its groups is the root of the mount. */
static bool find_mount(struct paths *p, const char *root, const char *controller, bool second) {
    bool found = false;
    FILE *file = open_under(root, "/proc/self", "mountinfo");
    while (file && !found && fgets(p->line, sizeof p->line, file)) {
        char kind[32], options[256], *rest = strstr(p->line, " - ");
        if (!rest || sscanf(rest, " - %31s %*s %255s", kind, options) != 2) continue;
        found = second ? strcmp(kind, "cgroup2") == 0 : strcmp(kind, "cgroup") == 0 && has_word(options, controller);
        found = found && sscanf(p->line, "%*s %*s %*s %4095s %4095s", p->top, p->at) == 2;
    }
    if (file) fclose(file);
    return found;
}

double control_groups_number(const char *root, const char *folder, const char *name, double *next) {
    char text[64] = "";
    FILE *file = open_under(root, folder, name);
    char *line = file ? fgets(text, sizeof text, file) : NULL, *end = text;
    if (file) fclose(file);
    double value = line ? strtod(text, &end) : -1;
    if (end == text) return -1;
    if (next) *next = strtod(end, NULL);
    return value;
}

/* Returns the smallest limit of a group and of the groups around it. */
static double least_of(struct paths *p, const char *root, const char *controller, control_group_limit *limit,
                       bool second) {
    if (!find_group(p, root, controller, second) || !find_mount(p, root, controller, second)) return INFINITY;
    size_t n = strcmp(p->top, "/") == 0 ? 0 : strlen(p->top), mount = strlen(p->at);
    bool inside = strncmp(p->group, p->top, n) == 0 && p->group[n] == '/' && p->group[n + 1];
    int length = snprintf(p->folder, sizeof p->folder, "%s%s", p->at, inside ? p->group + n : "");
    if (length < 0 || length >= LINE) return INFINITY;
    double least = limit(root, p->folder, second);
    while (strlen(p->folder) > mount) {
        *strrchr(p->folder, '/') = '\0';
        least = fmin(least, limit(root, p->folder, second));
    }
    return least;
}

double control_groups_least(const char *root, const char *controller, control_group_limit *limit) {
    struct paths *p =
        /* without a fault point: if this memory is not available, the limit is unknown, as without /proc */
        malloc(sizeof *p);
    if (!p) return INFINITY;
    double least = fmin(least_of(p, root, controller, limit, true), least_of(p, root, controller, limit, false));
    free(p);
    return least;
}
