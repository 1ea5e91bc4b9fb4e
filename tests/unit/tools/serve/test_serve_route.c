/* test_serve_route.c -- paths and methods, Host and Origin, API keys. */
#include "tests/test.h"
#include "tools/serve/wire/route.h"

static void route_is(const char *method, const char *path, enum endpoint endpoint, int status) {
    struct route r = route_find(method, path);
    if (r.endpoint != endpoint || r.status != status)
        fprintf(stderr, "%s %s: endpoint %d, status %d\n", method, path, r.endpoint, r.status);
    CHECK(r.endpoint == endpoint && r.status == status);
}

static void test_paths(void) {
    route_is("POST", "/v1/completions", ENDPOINT_COMPLETIONS, 200);
    route_is("GET", "/v1/completions", ENDPOINT_COMPLETIONS, 405);
    route_is("OPTIONS", "/v1/completions", ENDPOINT_COMPLETIONS, 204);
    route_is("HEAD", "/v1/models", ENDPOINT_MODELS, 200);
    route_is("DELETE", "/v1/models", ENDPOINT_MODELS, 405);
    route_is("GET", "/v1/models/", ENDPOINT_UNKNOWN, 404);
    route_is("GET", "/v1/models/a/b", ENDPOINT_MODELS, 200);
    route_is("POST", "/v1/models/a", ENDPOINT_MODELS, 405);
    CHECK_STR(route_find("GET", "/v1/models/a/b").model, "a/b");
    CHECK(!route_find("GET", "/v1/models").model && !route_find("GET", "/v1/models/a").open);
    route_is("GET", "//", ENDPOINT_UNKNOWN, 404);
    route_is("GET", "", ENDPOINT_UNKNOWN, 404);
    route_is("GET", "/../page.js", ENDPOINT_UNKNOWN, 404);
    route_is("GET", "/page.js", ENDPOINT_PAGE, 200);
    route_is("GET", "/documents/0", ENDPOINT_DOCUMENT, 200);
    route_is("GET", "/documents/9223372036854775807", ENDPOINT_DOCUMENT, 200);
    route_is("GET", "/documents/9223372036854775808", ENDPOINT_DOCUMENT, 400);
    route_is("GET", "/documents/", ENDPOINT_DOCUMENT, 400);
    route_is("GET", "/documents/-1", ENDPOINT_DOCUMENT, 400);
    route_is("GET", "/documents/1/2", ENDPOINT_DOCUMENT, 400);
    CHECK_EQ(route_find("GET", "/documents/42").document, 42);
    CHECK_STR(route_find("GET", "/").file, "index.html");
    CHECK(route_find("GET", "/").open && route_find("GET", "/health").open && !route_find("GET", "/metrics").open);
    CHECK(!route_find("POST", "/v1/completions").open && !route_find("GET", "/documents/1").open);
}

static void test_hosts(void) {
    const char *const allowed[] = {"drt.example"};
    const char *const good[] = {"localhost", "LocalHost:80", "127.0.0.1:8080", "[::1]", "[::1]:1", "drt.example:9"};
    const char *const bad[] = {"",         "evil.example",    "localhost.evil.example", "127.0.0.1.evil.example",
                               "[::1",     "localhost:",      "localhost:1:2",          "localhost:123456",
                               "[::1]x:1", "drt.example:9 x", "127.0.0.1:80@evil"};
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        CHECK(route_host_allowed(good[i], allowed, 1));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK(!route_host_allowed(bad[i], allowed, 1));
    CHECK(!route_host_allowed(NULL, allowed, 1));
    CHECK(!route_host_allowed("drt.example", NULL, 0));
}

static void test_origins(void) {
    CHECK(route_origin_allowed(NULL, "localhost:1", NULL));
    CHECK(route_origin_allowed("http://localhost:1", "localhost:1", NULL));
    CHECK(!route_origin_allowed("http://localhost:2", "localhost:1", NULL));
    CHECK(!route_origin_allowed("http://evil.example", "localhost:1", NULL));
    CHECK(!route_origin_allowed("null", "localhost:1", NULL));
    CHECK(route_origin_allowed("https://a.example", "localhost:1", "https://a.example"));
    CHECK(!route_origin_allowed("https://a.example.evil", "localhost:1", "https://a.example"));
}

static void test_keys(void) {
    char longest[ROUTE_KEY_MAX + 32];
    memset(longest, 'k', sizeof longest);
    memcpy(longest, "Bearer ", 7);
    longest[sizeof longest - 1] = 0;
    CHECK(route_key_matches("Bearer secret", "secret"));
    CHECK(route_key_matches("bearer secret", "secret"));
    CHECK(!route_key_matches("Bearer secre", "secret"));
    CHECK(!route_key_matches("Bearer secrets", "secret"));
    CHECK(!route_key_matches("Bearer ", "secret"));
    CHECK(!route_key_matches("secret", "secret"));
    CHECK(!route_key_matches("Basic secret", "secret"));
    CHECK(!route_key_matches(NULL, "secret"));
    CHECK(!route_key_matches(longest, "secret"));
}

static void test_numbers(void) {
    int64_t n = -1;
    CHECK(route_number(NULL, 7, &n) && n == 7);
    CHECK(route_number("0", 7, &n) && n == 0);
    CHECK(!route_number("", 7, &n) && !route_number("+1", 7, &n) && !route_number(" 1", 7, &n));
    CHECK(!route_number("99999999999999999999", 7, &n));
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    test_paths();
    test_hosts();
    test_origins();
    test_keys();
    test_numbers();
    return test_done();
}
