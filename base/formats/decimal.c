/* decimal.c -- see decimal.h. The locale "C" is part of the C library: newlocale finds it without a file and cannot
 * fail. */
#include "base/formats/decimal.h"
#include <assert.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

static locale_t plain_locale(void) {
    const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    assert(plain != (locale_t)0);
    return plain;
}

double decimal_read(const char *text) {
    const locale_t plain = plain_locale();
    const double value = strtod_l(text, NULL, plain);
    freelocale(plain);
    return value;
}

void decimal_write(char *out, size_t capacity, int digits, double value) {
    const locale_t plain = plain_locale(), before = uselocale(plain);
    snprintf(out, capacity, "%.*g", digits, value);
    uselocale(before);
    freelocale(plain);
}
