/* What the test program and the fuzz targets share: the core's functions with memory that suffices, and its decoder
 * held against naive.c. Whatever is wrong ends the process. */
#ifndef CALL_H
#define CALL_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../aq.h"
#include "naive.h"

static char tested[200]; /* what a failure is about */

#define EXPECT(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s: %s does not hold\n", __FILE__, __LINE__, tested, #condition); \
            abort(); \
        } \
    } while (0)

/* Work in pieces of uneven length, the last one first: the results must not depend on it. */
static inline void in_pieces(aq_work work, void *context, int64_t units, int64_t smallest) {
    int64_t piece = smallest > 0 ? smallest : 1, end = units, first = units - units % piece;
    for (; end > 0; end = first, first -= piece)
        if (first < end) work(context, first, end);
}

/* Memory for a call of the core: what was lent before, but none for every fourth size, so that it must ask. */
static aq_memory lent;

static inline aq_memory memory_for(uint64_t size) { return size % 4 ? lent : (aq_memory){NULL, 0}; }

/* What the error asks for. Returns whether to call again. */
static inline int more_memory(aq_memory *memory, int64_t result, aq_error *error) {
    if (!result || error->code != AQ_MEMORY) return 0;
    EXPECT((uint64_t)error->numbers[0] > memory->size);
    uint64_t needed = ((uint64_t)error->numbers[0] + 63) / 64 * 64;
    if (needed > lent.size) {
        free(lent.data);
        lent = (aq_memory){aligned_alloc(64, needed), needed};
        EXPECT(lent.data);
    }
    memory->data = lent.data, memory->size = needed;
    return 1;
}

static inline int32_t level_bytes(int64_t top) { return top <= 127 ? 1 : top <= 32767 ? 2 : 4; }

static inline int32_t level_at(const void *values, int32_t bytes, uint64_t i) {
    if (bytes == 1) return ((const int8_t *)values)[i];
    return bytes == 2 ? ((const int16_t *)values)[i] : ((const int32_t *)values)[i];
}

static inline int32_t decode(const uint8_t *frame, const aq_header *header, void *values, int32_t bytes, aq_each each) {
    aq_memory memory = memory_for(header->body_size);
    aq_error error = {0};
    int32_t wrong;
    do wrong = aq_decode(frame, header, values, bytes, memory, each, &error);
    while (more_memory(&memory, wrong, &error));
    return wrong;
}

static inline int32_t add(const uint8_t *frame, uint64_t size, uint64_t dimension, const aq_known *known, double weight,
                          float *total, double *bound, aq_each each) {
    aq_memory memory = memory_for(size);
    aq_error error = {0};
    int32_t wrong;
    do wrong = aq_add(frame, size, dimension, known, weight, total, bound, memory, each, &error);
    while (more_memory(&memory, wrong, &error));
    return wrong;
}

/* Encode levels, or compress floats if x is given. Returns a frame to be freed. */
static inline uint8_t *encode(aq_plan plan, const void *values, int32_t bytes, const float *x, uint64_t *size) {
    aq_error error = {0};
    double stretch = 1;
    int64_t made;
    plan.out = NULL, plan.room = 0, plan.memory = memory_for(plan.dimension);
    for (;;) {
        made = x ? aq_compress(&plan, x, &stretch, 1, &error) : aq_encode(&plan, values, bytes, &error);
        if (made < 0 && error.code == AQ_ROOM) { /* what it asks for may be the body's alone */
            plan.room += (uint64_t)error.numbers[0] > plan.room ? (uint64_t)error.numbers[0] - plan.room : 64;
            plan.out = realloc(plan.out, plan.room);
            EXPECT(plan.out);
        } else if (made > 0 || !more_memory(&plan.memory, made, &error)) {
            break;
        }
    }
    EXPECT(made > 0 && (uint64_t)made <= plan.room);
    *size = (uint64_t)made;
    return plan.out;
}

/* Both decoders read the same from these bytes, or both refuse them. Returns whether they were read. */
static inline int agree(const uint8_t *frame, uint64_t size, uint64_t most, const aq_known *known, aq_each each) {
    aq_header h;
    aq_error error = {0};
    naive_frame naive;
    naive_known expected = {0};
    uint64_t *lengths = NULL;
    if (known) {
        expected = (naive_known){known->quantizer, known->keyed, known->dimension, known->key, 1, NULL};
        if (known->offsets) {
            expected.segments = (uint64_t)known->segments;
            expected.lengths = lengths = malloc(expected.segments * sizeof *lengths);
            for (int64_t j = 0; j < known->segments; j++)
                lengths[j] = (uint64_t)(known->offsets[j + 1] - known->offsets[j]);
        }
    }
    int32_t wrong = aq_check(frame, size, 0, known, NULL, &h, &error);
    int read = !(!wrong && h.dimension > most) && naive_read(frame, size, most, known ? &expected : NULL, &naive);
    free(lengths);
    if (!wrong && h.dimension > most) return 0;
    if (wrong) {
        EXPECT(!read);
        return 0;
    }
    int32_t bytes = level_bytes(h.top);
    void *values = malloc(h.dimension * (uint64_t)bytes);
    int32_t checked = decode(frame, &h, NULL, bytes, each);
    EXPECT(checked == decode(frame, &h, values, bytes, each));
    EXPECT(read == !checked);
    if (read) {
        int64_t *offsets = malloc((h.scales + 1) * sizeof *offsets);
        EXPECT(h.dimension == naive.dimension && h.s == naive.s && h.scales == naive.segments && h.top == naive.top);
        EXPECT(h.quantizer == naive.quantizer && h.codec == naive.codec);
        EXPECT(!aq_traits_of(h.quantizer)->keyed || h.key == naive.key);
        EXPECT(!memcmp(frame + h.scales_at, naive.scales, h.scales * sizeof *naive.scales));
        aq_offsets(frame, &h, known, offsets);
        for (uint64_t j = 0; j < h.scales; j++) EXPECT(offsets[j + 1] - offsets[j] == (int64_t)naive.lengths[j]);
        for (uint64_t i = 0; i < h.dimension; i++) EXPECT(level_at(values, bytes, i) == naive.values[i]);
        free(offsets);
        naive_free(&naive);
    }
    free(values);
    return read;
}

#endif
