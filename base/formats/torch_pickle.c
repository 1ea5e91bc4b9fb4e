/* torch_pickle.c -- a stack machine for the opcodes that torch.save writes.
 *
 * It calls no function: REDUCE on one of the supported globals is a case below. Objects, stack, memo, tuple items and
 * dictionary entries are arrays with one common limit, so a hostile pickle can use at most some hundred megabytes.
 * There is no recursion. */
#include "base/formats/torch_pickle.h"
#include "base/memory.h"

#include <stdbool.h>
#include <string.h>

/* A tensor takes about 15 objects, so this allows for some hundred thousand tensors. */
enum { LIMIT = 4 << 20, MARKS_MAX = 1024, TENSORS_MAX = 1 << 18 };

enum known_global { GLOBAL_ORDERED_DICT, GLOBAL_REBUILD_TENSOR, GLOBAL_REBUILD_PARAMETER, GLOBAL_STORAGE };
static const struct known {
    const char *module, *name;
    enum known_global kind;
    enum safetensors_dtype dtype; /* GLOBAL_STORAGE */
} KNOWN[] = {
    {"collections", "OrderedDict", GLOBAL_ORDERED_DICT, 0},
    {"torch._utils", "_rebuild_tensor_v2", GLOBAL_REBUILD_TENSOR, 0},
    {"torch._utils", "_rebuild_parameter", GLOBAL_REBUILD_PARAMETER, 0},
    {"torch", "FloatStorage", GLOBAL_STORAGE, SAFETENSORS_F32},
    {"torch", "HalfStorage", GLOBAL_STORAGE, SAFETENSORS_F16},
    {"torch", "BFloat16Storage", GLOBAL_STORAGE, SAFETENSORS_BF16},
    {"torch", "DoubleStorage", GLOBAL_STORAGE, SAFETENSORS_F64},
    {"torch", "LongStorage", GLOBAL_STORAGE, SAFETENSORS_I64},
    {"torch", "IntStorage", GLOBAL_STORAGE, SAFETENSORS_I32},
    {"torch", "ShortStorage", GLOBAL_STORAGE, SAFETENSORS_I16},
    {"torch", "CharStorage", GLOBAL_STORAGE, SAFETENSORS_I8},
    {"torch", "ByteStorage", GLOBAL_STORAGE, SAFETENSORS_U8},
    {"torch", "BoolStorage", GLOBAL_STORAGE, SAFETENSORS_BOOL},
};

enum opcode {
    OP_MARK = '(',
    OP_STOP = '.',
    OP_POP = '0',
    OP_POP_MARK = '1',
    OP_DUP = '2',
    OP_BINFLOAT = 'G',
    OP_BININT = 'J',
    OP_BININT1 = 'K',
    OP_BININT2 = 'M',
    OP_NONE = 'N',
    OP_BINPERSID = 'Q',
    OP_REDUCE = 'R',
    OP_BINSTRING = 'T',
    OP_SHORT_BINSTRING = 'U',
    OP_BINUNICODE = 'X',
    OP_EMPTY_LIST = ']',
    OP_APPEND = 'a',
    OP_BUILD = 'b',
    OP_GLOBAL = 'c',
    OP_APPENDS = 'e',
    OP_BINGET = 'h',
    OP_LONG_BINGET = 'j',
    OP_BINPUT = 'q',
    OP_LONG_BINPUT = 'r',
    OP_SETITEM = 's',
    OP_TUPLE = 't',
    OP_SETITEMS = 'u',
    OP_EMPTY_DICT = '}',
    OP_EMPTY_TUPLE = ')',
    OP_PROTO = 0x80,
    OP_TUPLE1 = 0x85,
    OP_TUPLE2 = 0x86,
    OP_TUPLE3 = 0x87,
    OP_NEWTRUE = 0x88,
    OP_NEWFALSE = 0x89,
    OP_LONG1 = 0x8a,
    OP_SHORT_BINUNICODE = 0x8c,
    OP_BINUNICODE8 = 0x8d,
    OP_STACK_GLOBAL = 0x93,
    OP_MEMOIZE = 0x94,
    OP_FRAME = 0x95,
};

struct machine {
    struct pickle *p;
    const char *name;
    const uint8_t *begin, *at, *end;
    int32_t *stack;
    size_t depth, stack_capacity;
    size_t marks[MARKS_MAX];
    int n_marks;
    int32_t *memo;
    size_t memo_size, memo_capacity; /* -1: not set */
};

static enum status torch_pickle_broken(const struct machine *m, const char *what) {
    return fail(STATUS_INVALID, "%s: pickle byte %td: %s: damaged, or not written by torch.save", m->name,
                m->at - m->begin, what);
}

/* Grows one of the arrays by one element; all share one limit. */
static enum status pickle_check_count(const struct machine *m, size_t count) {
    if (count >= LIMIT)
        return fail(STATUS_UNSUPPORTED, "%s: pickle byte %td: more than %d objects; no model checkpoint needs that",
                    m->name, m->at - m->begin, LIMIT);
    return STATUS_OK;
}

/* Grows an array so that it has one element more than `count`. */
#define PICKLE_GROW(m, pointer, capacity, count)                                                                       \
    do {                                                                                                               \
        TRY(pickle_check_count(m, count));                                                                             \
        TRY(memory_grow(pointer, capacity, (count) + 1));                                                              \
    } while (0)

static enum status torch_pickle_push(struct machine *m, int32_t object) {
    PICKLE_GROW(m, &m->stack, &m->stack_capacity, m->depth);
    m->stack[m->depth++] = object;
    return STATUS_OK;
}

static enum status push_new(struct machine *m, struct pickle_object object) {
    struct pickle *p = m->p;
    PICKLE_GROW(m, &p->objects, &p->objects_capacity, p->n_objects);
    p->objects[p->n_objects] = object;
    return torch_pickle_push(m, (int32_t)p->n_objects++);
}

/* Returns the stack depth at the innermost mark. Items below it must not be popped. */
static size_t depth_at_mark(const struct machine *m) {
    return m->n_marks ? m->marks[m->n_marks - 1] : 0;
}

static enum status torch_pickle_pop(struct machine *m, int32_t *object) {
    if (m->depth <= depth_at_mark(m)) return torch_pickle_broken(m, "the stack is empty");
    *object = m->stack[--m->depth];
    return STATUS_OK;
}
static enum status pop_mark(struct machine *m, size_t *first) {
    if (m->n_marks == 0) return torch_pickle_broken(m, "there is no mark");
    *first = m->marks[--m->n_marks];
    return STATUS_OK;
}

static enum status torch_pickle_take(struct machine *m, const uint8_t **out, uint64_t bytes) {
    if ((uint64_t)(m->end - m->at) < bytes) return torch_pickle_broken(m, "it ends too early");
    *out = m->at;
    m->at += bytes;
    return STATUS_OK;
}
static enum status take_number(struct machine *m, uint64_t *out, int bytes) {
    const uint8_t *p = NULL;
    TRY(torch_pickle_take(m, &p, (uint64_t)bytes));
    *out = 0;
    for (int i = bytes - 1; i >= 0; i--)
        *out = *out << 8 | p[i];
    return STATUS_OK;
}

/* ---- what is built ------------------------------------------------------------------------------------- */

static enum status push_int(struct machine *m, int64_t value) {
    return push_new(m, (struct pickle_object){.kind = PICKLE_INT, .integer = value});
}

static enum status push_text(struct machine *m, int length_bytes) {
    uint64_t length = 0;
    const uint8_t *bytes = NULL;
    TRY(take_number(m, &length, length_bytes));
    TRY(torch_pickle_take(m, &bytes, length));
    return push_new(m, (struct pickle_object){.kind = PICKLE_TEXT, .text = {(const char *)bytes, (uint32_t)length}});
}

/* Reads a number of up to 8 bytes; sizes and offsets are never longer. */
static enum status push_long(struct machine *m) {
    uint64_t bytes = 0, value = 0;
    TRY(take_number(m, &bytes, 1));
    if (bytes > 8) return torch_pickle_broken(m, "a number of more than 64 bits");
    TRY(take_number(m, &value, (int)bytes));
    if (bytes && bytes < 8 && value >> (8 * bytes - 1)) value |= ~UINT64_C(0) << (8 * bytes);
    return push_int(m, (int64_t)value);
}

static enum status push_tuple(struct machine *m, size_t first) {
    struct pickle *p = m->p;
    struct pickle_tuple tuple = {(int32_t)p->n_items, (int32_t)(m->depth - first)};
    for (size_t i = first; i < m->depth; i++) {
        PICKLE_GROW(m, &p->items, &p->items_capacity, p->n_items);
        p->items[p->n_items++] = m->stack[i];
    }
    m->depth = first;
    return push_new(m, (struct pickle_object){.kind = PICKLE_TUPLE, .tuple = tuple});
}

static enum status push_small_tuple(struct machine *m, size_t count) {
    if (m->depth < depth_at_mark(m) + count) return torch_pickle_broken(m, "the stack is empty");
    return push_tuple(m, m->depth - count);
}

static enum status push_dict(struct machine *m) {
    return push_new(m, (struct pickle_object){.kind = PICKLE_DICT, .dict = {-1, -1}});
}

/* Puts stack[first..] (key, value, key, value, ...) into the dictionary below them. */
static enum status set_items(struct machine *m, size_t first) {
    struct pickle *p = m->p;
    if (first <= depth_at_mark(m) || (m->depth - first) % 2)
        return torch_pickle_broken(m, "dictionary entries without a dictionary");
    int32_t target = m->stack[first - 1];
    if (p->objects[target].kind != PICKLE_DICT)
        return torch_pickle_broken(m, "dictionary entries for something that is not a dictionary");
    for (size_t i = first; i < m->depth; i += 2) {
        PICKLE_GROW(m, &p->pairs, &p->pairs_capacity, p->n_pairs);
        int32_t pair = (int32_t)p->n_pairs++, last = p->objects[target].dict.last;
        p->pairs[pair] = (struct pickle_pair){m->stack[i], m->stack[i + 1], -1};
        if (last >= 0)
            p->pairs[last].next = pair;
        else
            p->objects[target].dict.first = pair;
        p->objects[target].dict.last = pair;
    }
    m->depth = first;
    return STATUS_OK;
}

/* Drops the items of a list: lists only occur as arguments that are not read. */
static enum status torch_pickle_append(struct machine *m, size_t first) {
    if (first <= depth_at_mark(m) || m->p->objects[m->stack[first - 1]].kind != PICKLE_LIST)
        return torch_pickle_broken(m, "list items without a list");
    m->depth = first;
    return STATUS_OK;
}

static bool text_is(struct pickle_text text, const char *word) {
    return strlen(word) == text.length && memcmp(text.bytes, word, text.length) == 0;
}

/* Makes a name of the file printable and not too long, for a message. */
static void torch_pickle_printable(char out[64], struct pickle_text text) {
    size_t n = text.length < 63 ? text.length : 63;
    for (size_t i = 0; i < n; i++)
        out[i] = text.bytes[i] >= ' ' && text.bytes[i] <= '~' ? text.bytes[i] : '?';
    out[n] = 0;
}

static enum status push_global(struct machine *m, struct pickle_text module, struct pickle_text name) {
    for (size_t i = 0; i < ARRAY_LEN(KNOWN); i++)
        if (text_is(module, KNOWN[i].module) && text_is(name, KNOWN[i].name))
            return push_new(m, (struct pickle_object){.kind = PICKLE_GLOBAL, .index = (int32_t)i});
    char shown_module[64], shown_name[64];
    torch_pickle_printable(shown_module, module);
    torch_pickle_printable(shown_name, name);
    return fail(STATUS_UNSUPPORTED,
                "%s: pickle byte %td: refuses to run pickle global '%s.%s': only plain tensors are "
                "read; save the state_dict alone with torch.save(model.state_dict(), ...)",
                m->name, m->at - m->begin, shown_module, shown_name);
}

static enum status take_line(struct machine *m, struct pickle_text *out) {
    const uint8_t *end = memchr(m->at, '\n', (size_t)(m->end - m->at));
    if (!end || end - m->at > UINT32_MAX) return torch_pickle_broken(m, "it ends too early");
    *out = (struct pickle_text){(const char *)m->at, (uint32_t)(end - m->at)};
    m->at = end + 1;
    return STATUS_OK;
}

static enum status stack_global(struct machine *m) {
    int32_t name = 0, module = 0;
    TRY(torch_pickle_pop(m, &name));
    TRY(torch_pickle_pop(m, &module));
    const struct pickle_object *objects = m->p->objects;
    if (objects[name].kind != PICKLE_TEXT || objects[module].kind != PICKLE_TEXT)
        return torch_pickle_broken(m, "a global without a name");
    return push_global(m, objects[module].text, objects[name].text);
}

/* Returns item i of a tuple; NULL if it is not a tuple, has no such item, or the item is of another kind. */
static const struct pickle_object *torch_pickle_item(const struct machine *m, int32_t object, int i,
                                                     enum pickle_kind kind) {
    const struct pickle *p = m->p;
    const struct pickle_object *o = &p->objects[object];
    if (o->kind != PICKLE_TUPLE || i >= o->tuple.count) return NULL;
    const struct pickle_object *found = &p->objects[p->items[o->tuple.first + i]];
    return found->kind == kind ? found : NULL;
}

/* ('storage', torch.FloatStorage, '0', 'cpu', 1024) */
static enum status push_storage(struct machine *m) {
    int32_t id = 0;
    struct pickle *p = m->p;
    TRY(torch_pickle_pop(m, &id));
    const struct pickle_object *tag = torch_pickle_item(m, id, 0, PICKLE_TEXT),
                               *type = torch_pickle_item(m, id, 1, PICKLE_GLOBAL),
                               *key = torch_pickle_item(m, id, 2, PICKLE_TEXT),
                               *elements = torch_pickle_item(m, id, 4, PICKLE_INT);
    if (!tag || !text_is(tag->text, "storage") || !type || KNOWN[type->index].kind != GLOBAL_STORAGE || !key ||
        !elements || elements->integer < 0)
        return torch_pickle_broken(m, "a persistent id that is not a storage");
    PICKLE_GROW(m, &p->storages, &p->storages_capacity, p->n_storages);
    p->storages[p->n_storages] = (struct pickle_storage){key->text, KNOWN[type->index].dtype, elements->integer};
    return push_new(m, (struct pickle_object){.kind = PICKLE_STORAGE, .index = (int32_t)p->n_storages++});
}

/* Stores (storage, offset, shape, stride, requires_grad, hooks) without checks. torch_checkpoint checks the numbers. */
static enum status push_tensor(struct machine *m, int32_t arguments) {
    struct pickle *p = m->p;
    const struct pickle_object *storage = torch_pickle_item(m, arguments, 0, PICKLE_STORAGE),
                               *offset = torch_pickle_item(m, arguments, 1, PICKLE_INT),
                               *shape = torch_pickle_item(m, arguments, 2, PICKLE_TUPLE),
                               *stride = torch_pickle_item(m, arguments, 3, PICKLE_TUPLE);
    if (!storage || !offset || !shape || !stride || shape->tuple.count != stride->tuple.count)
        return torch_pickle_broken(m, "a tensor with wrong arguments");
    if (shape->tuple.count > SAFETENSORS_DIMS_MAX)
        return fail(STATUS_UNSUPPORTED, "%s: pickle byte %td: a tensor of %d dimensions, and at most %d are read",
                    m->name, m->at - m->begin, shape->tuple.count, SAFETENSORS_DIMS_MAX);
    struct pickle_tensor tensor = {.storage = storage->index, .dims = shape->tuple.count, .offset = offset->integer};
    for (int i = 0; i < tensor.dims; i++) {
        const struct pickle_object *size = &p->objects[p->items[shape->tuple.first + i]],
                                   *step = &p->objects[p->items[stride->tuple.first + i]];
        if (size->kind != PICKLE_INT || step->kind != PICKLE_INT)
            return torch_pickle_broken(m, "a tensor with wrong arguments");
        tensor.shape[i] = size->integer;
        tensor.stride[i] = step->integer;
    }
    if (p->n_tensors >= TENSORS_MAX) return torch_pickle_broken(m, "too many tensors");
    PICKLE_GROW(m, &p->tensors, &p->tensors_capacity, p->n_tensors);
    p->tensors[p->n_tensors] = tensor;
    return push_new(m, (struct pickle_object){.kind = PICKLE_TENSOR, .index = (int32_t)p->n_tensors++});
}

static enum status torch_pickle_reduce(struct machine *m) {
    int32_t arguments = 0, function = 0;
    TRY(torch_pickle_pop(m, &arguments));
    TRY(torch_pickle_pop(m, &function));
    const struct pickle_object *f = &m->p->objects[function], *a = &m->p->objects[arguments];
    if (f->kind != PICKLE_GLOBAL || a->kind != PICKLE_TUPLE)
        return torch_pickle_broken(m, "a call of something that is not a function");
    switch (KNOWN[f->index].kind) {
    case GLOBAL_ORDERED_DICT:
        if (a->tuple.count) return torch_pickle_broken(m, "an OrderedDict with arguments");
        return push_dict(m);
    case GLOBAL_REBUILD_TENSOR:
        return push_tensor(m, arguments);
    case GLOBAL_REBUILD_PARAMETER:
        if (!torch_pickle_item(m, arguments, 0, PICKLE_TENSOR))
            return torch_pickle_broken(m, "a parameter without a tensor");
        return torch_pickle_push(m, m->p->items[a->tuple.first]);
    case GLOBAL_STORAGE:
        break;
    }
    return torch_pickle_broken(m, "a call of a storage type");
}

/* ---- the machine --------------------------------------------------------------------------------------- */

static enum status memo_put(struct machine *m, uint64_t index) {
    if (m->depth <= depth_at_mark(m)) return torch_pickle_broken(m, "the stack is empty");
    if (index >= LIMIT) return torch_pickle_broken(m, "a memo number out of range");
    TRY(memory_grow(&m->memo, &m->memo_capacity, (size_t)index + 1));
    while (m->memo_size <= index)
        m->memo[m->memo_size++] = -1;
    m->memo[index] = m->stack[m->depth - 1];
    return STATUS_OK;
}
static enum status memo_get(struct machine *m, uint64_t index) {
    if (index >= m->memo_size || m->memo[index] < 0) return torch_pickle_broken(m, "a memo number that was never set");
    return torch_pickle_push(m, m->memo[index]);
}

/* Handles opcodes with a number, and those that work on everything above a mark. */
static enum status step_data(struct machine *m, uint8_t op) {
    uint64_t number = 0;
    const uint8_t *skipped = NULL;
    size_t first = 0;
    switch (op) {
    case OP_PROTO:
        TRY(take_number(m, &number, 1));
        return number <= 5 ? STATUS_OK : torch_pickle_broken(m, "an unknown pickle protocol");
    case OP_FRAME:
        return torch_pickle_take(m, &skipped, 8);
    case OP_BINFLOAT:
        TRY(torch_pickle_take(m, &skipped, 8));
        return push_new(m, (struct pickle_object){.kind = PICKLE_FLOAT});
    case OP_BININT:
        TRY(take_number(m, &number, 4));
        return push_int(m, (int32_t)(uint32_t)number);
    case OP_BININT1:
    case OP_BININT2:
        TRY(take_number(m, &number, op == OP_BININT1 ? 1 : 2));
        return push_int(m, (int64_t)number);
    case OP_BINGET:
    case OP_LONG_BINGET:
        TRY(take_number(m, &number, op == OP_BINGET ? 1 : 4));
        return memo_get(m, number);
    case OP_BINPUT:
    case OP_LONG_BINPUT:
        TRY(take_number(m, &number, op == OP_BINPUT ? 1 : 4));
        return memo_put(m, number);
    case OP_TUPLE:
        TRY(pop_mark(m, &first));
        return push_tuple(m, first);
    case OP_SETITEMS:
        TRY(pop_mark(m, &first));
        return set_items(m, first);
    case OP_APPENDS:
        TRY(pop_mark(m, &first));
        return torch_pickle_append(m, first);
    case OP_POP_MARK:
        TRY(pop_mark(m, &m->depth));
        return STATUS_OK;
    default:
        return fail(STATUS_UNSUPPORTED,
                    "%s: pickle byte %td: refuses pickle opcode 0x%02x: only plain tensors are read; "
                    "save the state_dict alone with torch.save(model.state_dict(), ...)",
                    m->name, m->at - m->begin - 1, op);
    }
}

static enum status torch_pickle_step(struct machine *m, uint8_t op) {
    int32_t dropped = 0;
    struct pickle_text module = {0}, name = {0};
    switch (op) {
    case OP_MARK:
        if (m->n_marks == MARKS_MAX) return torch_pickle_broken(m, "too many marks");
        m->marks[m->n_marks++] = m->depth;
        return STATUS_OK;
    case OP_POP:
    case OP_BUILD: /* an object's attributes (a state_dict's _metadata), which are not needed */
        return torch_pickle_pop(m, &dropped);
    case OP_DUP:
        if (m->depth <= depth_at_mark(m)) return torch_pickle_broken(m, "the stack is empty");
        return torch_pickle_push(m, m->stack[m->depth - 1]);
    case OP_NONE:
        return push_new(m, (struct pickle_object){.kind = PICKLE_NONE});
    case OP_NEWTRUE:
    case OP_NEWFALSE:
        return push_new(m, (struct pickle_object){.kind = PICKLE_BOOL, .integer = op == OP_NEWTRUE});
    case OP_LONG1:
        return push_long(m);
    case OP_SHORT_BINSTRING:
    case OP_SHORT_BINUNICODE:
        return push_text(m, 1);
    case OP_BINSTRING:
    case OP_BINUNICODE:
        return push_text(m, 4);
    case OP_BINUNICODE8:
        return push_text(m, 8);
    case OP_EMPTY_LIST:
        return push_new(m, (struct pickle_object){.kind = PICKLE_LIST});
    case OP_EMPTY_DICT:
        return push_dict(m);
    case OP_EMPTY_TUPLE:
        return push_tuple(m, m->depth);
    case OP_TUPLE1:
    case OP_TUPLE2:
    case OP_TUPLE3:
        return push_small_tuple(m, (size_t)(op - OP_TUPLE1 + 1));
    case OP_SETITEM:
        if (m->depth < depth_at_mark(m) + 3) return torch_pickle_broken(m, "the stack is empty");
        return set_items(m, m->depth - 2);
    case OP_APPEND:
        if (m->depth < depth_at_mark(m) + 2) return torch_pickle_broken(m, "the stack is empty");
        return torch_pickle_append(m, m->depth - 1);
    case OP_GLOBAL:
        TRY(take_line(m, &module));
        TRY(take_line(m, &name));
        return push_global(m, module, name);
    case OP_STACK_GLOBAL:
        return stack_global(m);
    case OP_BINPERSID:
        return push_storage(m);
    case OP_REDUCE:
        return torch_pickle_reduce(m);
    case OP_MEMOIZE:
        return memo_put(m, m->memo_size);
    default:
        return step_data(m, op);
    }
}

enum status pickle_run(struct pickle *out, const char *name, const uint8_t *data, size_t bytes) {
    struct machine m = {.p = out, .name = name, .begin = data, .at = data, .end = data + bytes};
    enum status status = STATUS_OK;
    for (;;) {
        const uint8_t *op = NULL;
        TRY_GOTO(status, torch_pickle_take(&m, &op, 1), out);
        if (*op == OP_STOP) break;
        TRY_GOTO(status, torch_pickle_step(&m, *op), out);
    }
    status = m.n_marks ? torch_pickle_broken(&m, "a mark is left open") : torch_pickle_pop(&m, &out->result);
out:
    memory_free(m.stack);
    memory_free(m.memo);
    return status;
}

void pickle_free(struct pickle *p) {
    memory_free(p->objects);
    memory_free(p->pairs);
    memory_free(p->items);
    memory_free(p->storages);
    memory_free(p->tensors);
    *p = (struct pickle){0};
}
