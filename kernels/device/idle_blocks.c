/* idle_blocks.c -- see idle_blocks.h. A list in no order: a program has some thousand blocks at most. */
#include "kernels/device/idle_blocks.h"
#include "base/memory.h"

size_t idle_blocks_size(size_t bytes) {
    const size_t step = 512;
    return bytes == 0 ? step : (bytes + step - 1) / step * step;
}

void *idle_blocks_take(struct idle_blocks *b, size_t size) {
    for (size_t i = 0; b->kept >= size && i < b->n; i++) {
        struct idle_block *block = &b->at[i];
        if (!block->idle || block->bytes != size) continue;
        block->idle = false;
        b->kept -= size;
        return block->memory;
    }
    return NULL;
}

enum status idle_blocks_add(struct idle_blocks *b, void *memory, size_t size) {
    TRY(memory_grow(&b->at, &b->capacity, b->n + 1));
    b->at[b->n++] = (struct idle_block){.memory = memory, .bytes = size};
    return STATUS_OK;
}

bool idle_blocks_keep(struct idle_blocks *b, const void *memory) {
    for (size_t i = 0; i < b->n; i++) {
        if (b->at[i].memory != memory) continue;
        if (b->at[i].bytes <= b->limit - b->kept) {
            b->at[i].idle = true;
            b->kept += b->at[i].bytes;
            return true;
        }
        b->at[i] = b->at[--b->n];
        return false;
    }
    return false;
}

void *idle_blocks_drop(struct idle_blocks *b) {
    for (size_t i = b->n; i > 0; i--) {
        if (!b->at[i - 1].idle) continue;
        void *memory = b->at[i - 1].memory;
        b->kept -= b->at[i - 1].bytes;
        b->at[i - 1] = b->at[--b->n];
        return memory;
    }
    return NULL;
}

void idle_blocks_release(struct idle_blocks *b) {
    memory_free(b->at);
    *b = (struct idle_blocks){.limit = b->limit};
}
