/* args.c -- parsing and help from one table.
 *
 * Parsing reads argv twice. The first pass only looks for --help and --version, so that the help text shows the
 * defaults and not values from the same command line. */
#include "tools/shared/args.h"
#include "base/formats/near_name.h"
#include "session/build_version.h"
#include "tools/shared/log.h"
#include "tools/shared/streams.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { HELP_WIDTH = 100, HELP_COLUMN = 30 };

PRINTF_LIKE(2, 3) static int usage_error(const struct arg_program *program, const char *format, ...) {
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    log_line(LOG_ERROR, "usage", program->name, "%s; see %s --help", text, program->name);
    return 2;
}

/* ---- names --------------------------------------------------------------------------------------------- */

static const struct arg_option *option_find(const struct arg_program *program, const char *name, size_t length) {
    for (int i = 0; i < program->n_options; i++) {
        const struct arg_option *o = &program->options[i];
        if (o->name && strlen(o->name) == length && memcmp(o->name, name, length) == 0) return o;
    }
    return NULL;
}

static const struct arg_option *option_of_letter(const struct arg_program *program, char letter) {
    for (const struct arg_letter *l = program->letters; l && l->letter; l++)
        if (l->letter == letter) return option_find(program, l->name, strlen(l->name));
    return NULL;
}

static char option_letter(const struct arg_program *program, const struct arg_option *o) {
    for (const struct arg_letter *l = program->letters; l && l->letter; l++)
        if (strcmp(l->name, o->name) == 0) return l->letter;
    return 0;
}

/* Options that every program has. */
static const char *const common[] = {"help", "version"};

static const char *option_guess(const struct arg_program *program, const char *name, size_t length) {
    struct near_name near = near_name_of(name, length);
    for (int i = 0; i < program->n_options; i++)
        if (program->options[i].name) near_name_offer(&near, program->options[i].name);
    for (size_t i = 0; i < ARRAY_LEN(common); i++)
        near_name_offer(&near, common[i]);
    return near_name_best(&near);
}

/* ---- values -------------------------------------------------------------------------------------------- */

static int out_of_range(const struct arg_program *program, const struct arg_option *o, const char *text) {
    if (isinf(o->max)) return usage_error(program, "--%s %s: must be at least %.15g", o->name, text, o->min);
    return usage_error(program, "--%s %s: must be between %.15g and %.15g", o->name, text, o->min, o->max);
}

static bool in_range(const struct arg_option *o, double value) {
    return (o->min == 0 && o->max == 0) || (value >= o->min && value <= o->max);
}

static int store_int(const struct arg_program *program, const struct arg_option *o, const char *text) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (!(isdigit((unsigned char)text[0]) || text[0] == '-' || text[0] == '+') || *end || end == text)
        return usage_error(program, "--%s '%s': not a whole number", o->name, text);
    if (errno == ERANGE) return usage_error(program, "--%s %s: too large", o->name, text);
    if (!in_range(o, (double)value)) return out_of_range(program, o, text);
    *(int64_t *)o->value = value;
    return -1;
}

static int store_double(const struct arg_program *program, const struct arg_option *o, const char *text) {
    char *end;
    double value = strtod(text, &end);
    /* strtod also accepts "nan", "inf" and hexadecimal, which are refused here. */
    if (end == text || *end || isspace((unsigned char)text[0]) || !isfinite(value) || strpbrk(text, "xX"))
        return usage_error(program, "--%s '%s': not a number", o->name, text);
    if (!in_range(o, value)) return out_of_range(program, o, text);
    *(double *)o->value = value;
    return -1;
}

static int store_bytes(const struct arg_program *program, const struct arg_option *o, const char *text) {
    static const char units[] = "kmgt";
    char *end;
    double value = strtod(text, &end), scale = 1;
    const char *unit = *end ? strchr(units, tolower((unsigned char)*end)) : NULL;
    if (end == text || !isdigit((unsigned char)text[0]) || !isfinite(value) || strpbrk(text, "xX") || (*end && !unit))
        return usage_error(program, "--%s '%s': not a size; write 8G, 512M, 100k or plain bytes", o->name, text);
    if (unit) {
        scale = pow(1024, (double)(unit - units + 1));
        end++;
        if (end[0] == 'i' || end[0] == 'I') end++;
        if (end[0] == 'B' || end[0] == 'b') end++;
    }
    if (*end) return usage_error(program, "--%s '%s': not a size; write 8G, 512M, 100k or plain bytes", o->name, text);
    value *= scale;
    if (value >= 0x1p63) return usage_error(program, "--%s %s: too large", o->name, text);
    if (!in_range(o, value)) return out_of_range(program, o, text);
    *(uint64_t *)o->value = (uint64_t)value;
    return -1;
}

static int store_choice(const struct arg_program *program, const struct arg_option *o, const char *text) {
    for (const char *word = o->placeholder; *word;) {
        size_t length = strcspn(word, "|");
        if (strlen(text) == length && memcmp(text, word, length) == 0) {
            *(const char **)o->value = text;
            return -1;
        }
        word += length + (word[length] == '|');
    }
    return usage_error(program, "--%s '%s': must be one of %s", o->name, text, o->placeholder);
}

static int store_value(const struct arg_program *program, const struct arg_option *o, const char *text) {
    switch (o->kind) {
    case ARG_REMOVED:
        return 2;
    case ARG_FLAG:
        *(bool *)o->value = true;
        return -1;
    case ARG_PATH:
        if (!*text) return usage_error(program, "--%s '': the name is empty", o->name);
        *(const char **)o->value = text;
        return -1;
    case ARG_STRING:
        *(const char **)o->value = text;
        return -1;
    case ARG_STRINGS: {
        struct arg_strings *strings = o->value;
        if (strings->count == (int)ARRAY_LEN(strings->items))
            return usage_error(program, "--%s: given more than %d times", o->name, strings->count);
        strings->items[strings->count++] = text;
        return -1;
    }
    case ARG_CHOICE:
        return store_choice(program, o, text);
    case ARG_INT:
        return store_int(program, o, text);
    case ARG_DOUBLE:
        return store_double(program, o, text);
    case ARG_BYTES:
        return store_bytes(program, o, text);
    }
    return 2;
}

/* ---- parsing ------------------------------------------------------------------------------------------- */

static int unknown_option(const struct arg_program *program, const char *argument) {
    if (argument[1] != '-') {
        const char *name = argument + 1;
        size_t length = strcspn(name, "=");
        if (option_find(program, name, length))
            return usage_error(program, "unknown option %s (did you mean --%.*s, with two dashes?)", argument,
                               (int)length, name);
        const struct arg_option *o = option_of_letter(program, argument[1]);
        if (o && o->kind != ARG_FLAG)
            return usage_error(program, "unknown option %s (the value is an argument of its own: -%c %s)", argument,
                               argument[1], argument + 2 + (argument[2] == '='));
        return usage_error(program, "unknown option %s (long options are written with two dashes)", argument);
    }
    const char *name = argument + 2;
    size_t length = strcspn(name, "=");
    const char *guess = option_guess(program, name, length);
    if (guess) return usage_error(program, "unknown option --%.*s (did you mean --%s?)", (int)length, name, guess);
    return usage_error(program, "unknown option --%.*s", (int)length, name);
}

/* Finds the option that an argument names, and the value in the argument ("--name=value"; NULL: none). */
static const struct arg_option *option_of(const struct arg_program *program, const char *argument, const char **value) {
    *value = NULL;
    if (argument[1] != '-') return argument[2] ? NULL : option_of_letter(program, argument[1]);
    const char *name = argument + 2;
    size_t length = strcspn(name, "=");
    if (name[length] == '=') *value = name + length + 1;
    return option_find(program, name, length);
}

/* A value that looks like an option usually means that the value was forgotten. */
static bool looks_like_option(const struct arg_program *program, const char *text) {
    if (strncmp(text, "--", 2) == 0) return true;
    return text[0] == '-' && text[1] && !text[2] && option_of_letter(program, text[1]);
}

static int value_missing(const struct arg_program *program, const struct arg_option *o, const char *next) {
    const char *what = o->placeholder ? o->placeholder : "VALUE";
    if (next)
        return usage_error(program, "--%s needs a value (%s), but %s follows (if that is the value: --%s=%s)", o->name,
                           what, next, o->name, next);
    return usage_error(program, "--%s needs a value (%s)", o->name, what);
}

static bool args_wants(const char *argument, const char *name, const char *letter) {
    return strcmp(argument, name) == 0 || strcmp(argument, letter) == 0;
}

/* Stores an argument that is not an option, for a program without operands. *alone: the one that was stored. */
static int store_operand(const struct arg_program *program, const char *argument, const char **alone) {
    const struct arg_option *o =
        program->operand ? option_find(program, program->operand, strlen(program->operand)) : NULL;
    if (!o || *(const char **)o->value)
        return usage_error(program, "'%s' is one argument too many (quote text that has spaces)", argument);
    *alone = argument;
    return store_value(program, o, argument);
}

enum walk { WALK_CONTINUE = -1, WALK_HELP = -2, WALK_VERSION = -3 };

/* Reads argv once. Returns WALK_... or an exit code. `look_only`: neither stores nor refuses anything. */
static int args_walk(const struct arg_program *program, int argc, char **argv, const char **operands, int *n_operands,
                     bool look_only) {
    bool only_operands = false;
    const char *alone = NULL; /* the value of program->operand, as an argument of its own */
    *n_operands = 0;
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i], *value;
        if (only_operands || argument[0] != '-' || argument[1] == 0) {
            if (program->max_operands >= 0 && *n_operands == program->max_operands) {
                if (look_only) continue;
                const int code = store_operand(program, argument, &alone);
                if (code >= 0) return code;
                continue;
            }
            operands[(*n_operands)++] = argument;
            continue;
        }
        if (strcmp(argument, "--") == 0) {
            only_operands = true;
            continue;
        }
        if (args_wants(argument, "--help", "-h")) return WALK_HELP;
        if (args_wants(argument, "--version", "-V")) return WALK_VERSION;
        const struct arg_option *o = option_of(program, argument, &value);
        if (!o) {
            if (look_only) continue;
            return unknown_option(program, argument);
        }
        if (o->kind == ARG_REMOVED && !look_only) return usage_error(program, "--%s: %s", o->name, o->help);
        if (o->kind == ARG_FLAG && value && !look_only)
            return usage_error(program, "--%s takes no value (got '%s')", o->name, value);
        if (o->kind != ARG_FLAG && !value) {
            if (i + 1 < argc && !looks_like_option(program, argv[i + 1])) {
                value = argv[++i];
            } else if (!look_only) {
                return value_missing(program, o, i + 1 < argc ? argv[i + 1] : NULL);
            }
        }
        if (look_only) continue;
        if (alone && o == option_find(program, program->operand, strlen(program->operand)))
            return usage_error(program, "--%s is given twice: '%s' is one, too", o->name, alone);
        int code = store_value(program, o, value);
        if (code >= 0) return code;
    }
    return WALK_CONTINUE;
}

/* --log-json is read before anything is refused, because a refusal is a line of the log, too. */
static void look_for_log(const struct arg_program *program, int argc, char **argv) {
    const struct arg_option *o = option_find(program, "log-json", strlen("log-json"));
    for (int i = 1; o && i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--log-json") == 0) *(bool *)o->value = true;
}

int args_parse(const struct arg_program *program, int argc, char **argv, const char **operands, int *n_operands) {
    int code = args_walk(program, argc, argv, operands, n_operands, true);
    if (code == WALK_HELP) args_help(program, stdout);
    if (code == WALK_VERSION) build_version_print(stdout, program->name);
    if (code != WALK_CONTINUE) return 0;
    look_for_log(program, argc, argv);
    code = args_walk(program, argc, argv, operands, n_operands, false);
    if (code >= 0) return code;
    if (*n_operands < program->min_operands)
        return usage_error(program, "an argument is missing; usage: %s %s", program->name, program->synopsis);
    return -1;
}

/* ---- help ---------------------------------------------------------------------------------------------- */

/* Returns the length up to the next space. Text in brackets (a group of a synopsis, a default) stays on one line. */
static int word_length(const char *text) {
    if (text[0] == '[' || strncmp(text, "(default: ", 10) == 0) {
        const char *end = strchr(text, text[0] == '[' ? ']' : ')');
        if (end && end - text < HELP_WIDTH / 2) return (int)(end - text) + 1 + (int)strcspn(end + 1, " \n");
    }
    return (int)strcspn(text, " \n");
}

/* Prints words from column `at`, wrapped at HELP_WIDTH and indented by `indent`. A newline is printed as a space; an
 * empty line begins a new paragraph. Returns the column after the last word. */
static int print_wrapped(FILE *out, const char *text, int at, int indent) {
    bool line_begins = true;
    while (*text) {
        int blanks = (int)strspn(text, " \n");
        if (blanks > 1 && memchr(text, '\n', (size_t)blanks) != memrchr(text, '\n', (size_t)blanks)) {
            fprintf(out, "\n\n%*s", indent, "");
            at = indent;
            line_begins = true;
        }
        text += blanks;
        if (!*text) break;
        int length = word_length(text);
        if (!line_begins && at + 1 + length > HELP_WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
            line_begins = true;
        }
        at += fprintf(out, "%s%.*s", line_begins ? "" : " ", length, text);
        line_begins = false;
        text += length;
    }
    return at;
}

static void format_bytes(char *out, size_t size, uint64_t bytes) {
    static const char units[] = "\0kMGT";
    int unit = 0;
    while (unit < 4 && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(out, size, "%llu%.1s", (unsigned long long)bytes, &units[unit]);
}

/* Writes the default as text; "" if there is none, or if the help text states it. A number outside of the option's
 * limits means "not given". */
static void format_default(char *out, size_t size, const struct arg_option *o) {
    char value[256] = "";
    out[0] = 0;
    if (strstr(o->help, "default")) return;
    switch (o->kind) {
    case ARG_REMOVED:
    case ARG_FLAG:
    case ARG_STRINGS:
        return;
    case ARG_STRING:
    case ARG_PATH:
    case ARG_CHOICE:
        if (!*(const char **)o->value) return;
        snprintf(value, sizeof value, "%s", *(const char **)o->value);
        break;
    case ARG_INT:
        if (!in_range(o, (double)*(int64_t *)o->value)) return;
        snprintf(value, sizeof value, "%lld", (long long)*(int64_t *)o->value);
        break;
    case ARG_DOUBLE:
        snprintf(value, sizeof value, "%g", *(double *)o->value);
        break;
    case ARG_BYTES:
        format_bytes(value, sizeof value, *(uint64_t *)o->value);
        break;
    }
    snprintf(out, size, " (default: %s)", value);
}

static void print_option(FILE *out, const struct arg_option *o, char letter) {
    char text[2048], standard[300];
    int at = letter ? fprintf(out, "  -%c, --%s", letter, o->name) : fprintf(out, "  --%s", o->name);
    if (o->kind != ARG_FLAG) at += fprintf(out, " %s", o->placeholder ? o->placeholder : "VALUE");
    if (at + 2 > HELP_COLUMN) {
        fprintf(out, "\n");
        at = 0;
    }
    fprintf(out, "%*s", HELP_COLUMN - at, "");
    format_default(standard, sizeof standard, o);
    snprintf(text, sizeof text, "%s%s", o->help, standard);
    print_wrapped(out, text, HELP_COLUMN, HELP_COLUMN);
    fprintf(out, "\n");
}

void args_help(const struct arg_program *program, FILE *out) {
    int at = fprintf(out, "Usage: %s", program->name);
    fprintf(out, " ");
    print_wrapped(out, program->synopsis, at + 1, 7);
    fprintf(out, "\n\n");
    print_wrapped(out, program->about, 0, 0);
    fprintf(out, "\n");
    bool headed = program->n_options > 0 && !program->options[0].name;
    if (!headed) fprintf(out, "\nOptions:\n");
    for (int i = 0; i < program->n_options; i++) {
        const struct arg_option *o = &program->options[i];
        if (o->kind == ARG_REMOVED) continue;
        if (o->name)
            print_option(out, o, option_letter(program, o));
        else
            fprintf(out, "\n%s:\n", o->help);
    }
    fprintf(out, "%s  %-*s%s\n", headed ? "\n" : "", HELP_COLUMN - 2, "-h, --help", "this text");
    fprintf(out, "  %-*s%s\n", HELP_COLUMN - 2, "-V, --version", "the versions of the program and its libraries");
    if (program->examples)
        fprintf(out, "\nExamples:\n%s%s", program->examples,
                program->examples[strlen(program->examples) - 1] == '\n' ? "" : "\n");
}
