/* route.c -- see route.h. */
#include "tools/serve/wire/route.h"
#include "base/status.h"

#include <string.h>
#include <strings.h>

const char *const endpoint_names[ENDPOINTS] = {
    "/v1/completions", "/v1/models", "/tokenize", "/detokenize", "/tokenizer_info", "/search",
    "/documents/ID",   "/health",    "/metrics",  "/",           "unknown",
};

static const struct {
    const char *path;
    enum endpoint endpoint;
    bool posts, open;
    const char *file;
} paths[] = {
    {"/v1/completions", ENDPOINT_COMPLETIONS, true, false, NULL},
    {"/v1/models", ENDPOINT_MODELS, false, false, NULL},
    {"/tokenize", ENDPOINT_TOKENIZE, true, false, NULL},
    {"/detokenize", ENDPOINT_DETOKENIZE, true, false, NULL},
    {"/tokenizer_info", ENDPOINT_TOKENIZER_INFO, false, false, NULL},
    {"/search", ENDPOINT_SEARCH, true, false, NULL},
    {"/health", ENDPOINT_HEALTH, false, true, NULL},
    {"/metrics", ENDPOINT_METRICS, false, false, NULL},
    {"/", ENDPOINT_PAGE, false, true, "index.html"},
    {"/page.js", ENDPOINT_PAGE, false, true, "page.js"},
    {"/page.css", ENDPOINT_PAGE, false, true, "page.css"},
};
static const char documents[] = "/documents/", models[] = "/v1/models/";

bool route_number(const char *text, int64_t missing, int64_t *out) {
    int64_t value = 0;
    if (!text) {
        *out = missing;
        return true;
    }
    if (!*text) return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9') return false;
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *text - '0', &value))
            return false;
    }
    *out = value;
    return true;
}

static struct route route_path(const char *path) {
    struct route r = {.endpoint = ENDPOINT_UNKNOWN, .status = 404, .open = true};
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        if (strcmp(path, paths[i].path) == 0)
            return (struct route){.endpoint = paths[i].endpoint,
                                  .status = 200,
                                  .posts = paths[i].posts,
                                  .open = paths[i].open,
                                  .file = paths[i].file};
    if (strncmp(path, models, sizeof models - 1) == 0 && path[sizeof models - 1])
        return (struct route){.endpoint = ENDPOINT_MODELS, .status = 200, .model = path + sizeof models - 1};
    if (strncmp(path, documents, sizeof documents - 1) != 0) return r;
    r.endpoint = ENDPOINT_DOCUMENT;
    r.open = false;
    r.status = route_number(path + sizeof documents - 1, 0, &r.document) ? 200 : 400;
    return r;
}

struct route route_find(const char *method, const char *path) {
    struct route r = route_path(path);
    if (r.status == 404) return r;
    bool known = r.posts ? strcmp(method, "POST") == 0 : strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    if (known) return r;
    r.allow = r.posts ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
    r.status = strcmp(method, "OPTIONS") == 0 ? 204 : 405;
    r.open = true;
    return r;
}

/* Returns the length of the name in "name", "name:port" or "[::1]:port"; 0: the text has another form. */
static size_t host_name(const char *host) {
    size_t name = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    if (host[0] == '[' && host[name - 1] != ']') return 0;
    if (host[name] == 0) return name;
    if (host[name] != ':') return 0;
    size_t digits = strspn(host + name + 1, "0123456789");
    return digits > 0 && digits <= 5 && host[name + 1 + digits] == 0 ? name : 0;
}

bool route_host_allowed(const char *host, const char *const *allowed, int n) {
    static const char *const loopback[] = {"localhost", "127.0.0.1", "[::1]"};
    size_t length = host ? host_name(host) : 0;
    if (length == 0) return false;
    for (size_t i = 0; i < ARRAY_LEN(loopback); i++)
        if (strlen(loopback[i]) == length && strncasecmp(host, loopback[i], length) == 0) return true;
    for (int i = 0; i < n; i++)
        if (strlen(allowed[i]) == length && strncasecmp(host, allowed[i], length) == 0) return true;
    return false;
}

bool route_origin_allowed(const char *origin, const char *host, const char *cors_origin) {
    if (!origin) return true;
    if (cors_origin && strcmp(origin, cors_origin) == 0) return true;
    const char *name = strncmp(origin, "http://", 7) == 0    ? origin + 7
                       : strncmp(origin, "https://", 8) == 0 ? origin + 8
                                                             : NULL;
    return name && host && strcasecmp(name, host) == 0;
}

/* Both are padded to one length, and every byte is compared. */
bool route_key_matches(const char *authorization, const char *key) {
    static const char bearer[] = "Bearer ";
    unsigned char given[ROUTE_KEY_MAX] = {0}, wanted[ROUTE_KEY_MAX] = {0}, different = 0;
    if (!authorization || strncasecmp(authorization, bearer, sizeof bearer - 1) != 0) return false;
    const char *token = authorization + sizeof bearer - 1;
    size_t length = strlen(token), want = strlen(key);
    if (length >= ROUTE_KEY_MAX || want >= ROUTE_KEY_MAX) return false;
    memcpy(given, token, length);
    memcpy(wanted, key, want);
    for (size_t i = 0; i < ROUTE_KEY_MAX; i++)
        different |= (unsigned char)(given[i] ^ wanted[i]);
    __asm__ volatile("" : "+r"(different)); /* prevents the compiler from ending the loop early */
    return different == 0;
}
