/* Whole frames: what a sender, a receiver and a server's sum each do with one call. */
#include <math.h>

#include "header.h"

#define LARGEST_FLOAT 0x1p127

/* -- writing */

static int64_t out_of_room(uint64_t needed, aq_error *error) {
    return -aq_fail(error, AQ_ROOM, (int64_t)needed, 0, 0, 0);
}

/* A body for levels (values) or for floats, at plan->out + head; *codec: which code it is. */
static int64_t write_body(const aq_plan *plan, uint64_t head, const aq_floats *floats, const void *values,
                          int32_t bytes, int32_t *codec, aq_arena *arena, aq_error *error) {
    int64_t d = (int64_t)plan->dimension, top = plan->top;
    uint64_t fixed = aq_fixed_size(d, top);
    if (plan->room < head + AQ_CHECKSUM_SIZE) return out_of_room(head + fixed + AQ_CHECKSUM_SIZE, error);
    uint64_t room = plan->room - head - AQ_CHECKSUM_SIZE;
    uint8_t *body = plan->out + head;
    *codec = plan->codec;
    if (plan->codec == AQ_AUTO)
        return floats ? aq_auto_compress(floats, body, room, codec, arena, plan->each, error)
                      : aq_auto_write(values, bytes, d, top, body, room, codec, arena, plan->each, error);
    if (plan->codec == AQ_FIXED) {
        if (fixed > room) return out_of_room(head + fixed + AQ_CHECKSUM_SIZE, error);
        if (floats) aq_fixed_compress(floats, body, plan->each);
        else aq_fixed_write(values, bytes, d, top, body, plan->each);
        return (int64_t)fixed;
    }
    if (plan->codec == AQ_SPARSE) {
        int64_t *counts = aq_take(arena, (uint64_t)aq_tiles(d) * sizeof *counts);
        /* The lists get a sixth of what is left: writing takes up to five times as much as they do. */
        int64_t most = aq_least(d, (int64_t)(arena->left / 48));
        uint32_t *index = aq_take(arena, (uint64_t)most * sizeof *index);
        int32_t *level = aq_take(arena, (uint64_t)most * sizeof *level);
        int64_t found = arena->lacking ? -1
                        : floats       ? aq_find_floats(floats, index, level, most, counts, plan->each)
                                       : aq_find_levels(values, bytes, d, index, level, most, counts, plan->each);
        if (found < 0) {
            arena->lacking = 1, arena->taken += 48 * (uint64_t)d;
            return -aq_lacks(arena, error);
        }
        return aq_sparse_write(index, level, found, counts, d, body, room, arena, plan->each, error);
    }
    if (plan->codec != AQ_DENSE) return -aq_fail(error, AQ_CODEC, plan->codec, 0, 0, 0);
    if (floats) {
        bytes = aq_level_bytes(top);
        void *levels = aq_take(arena, plan->dimension * (uint64_t)bytes);
        if (arena->lacking) return -aq_lacks(arena, error);
        aq_levels_of(floats, levels, bytes, plan->each);
        values = levels;
    }
    return aq_dense_write(values, bytes, d, top, body, room, arena, plan->each, error);
}

static int64_t write_frame(const aq_plan *plan, const aq_floats *floats, const void *values, int32_t bytes,
                           aq_arena *arena, aq_error *error) {
    uint64_t head = aq_header_size(plan);
    int32_t codec;
    int64_t size = write_body(plan, head, floats, values, bytes, &codec, arena, error);
    return size < 0 ? -(int64_t)error->code : aq_finish(plan, codec, head, (uint64_t)size);
}

AQ_API int64_t aq_encode(const aq_plan *plan, const void *values, int32_t bytes, aq_error *error) {
    aq_arena arena = aq_arena_of(plan->memory);
    return write_frame(plan, NULL, values, bytes, &arena, error);
}

AQ_API int64_t aq_compress(const aq_plan *plan, const float *x, const double *stretch, int64_t stretches,
                           aq_error *error) {
    aq_arena arena = aq_arena_of(plan->memory);
    int64_t whole[2] = {0, (int64_t)plan->dimension};
    aq_floats floats = {.x = x,
                        .offsets = plan->segmented ? plan->offsets : whole,
                        .segments = plan->segmented ? plan->segments : 1,
                        .dimension = (int64_t)plan->dimension,
                        .s = plan->s,
                        .low = (uint32_t)plan->key,
                        .high = (uint32_t)(plan->key >> 32),
                        .norm = plan->quantizer == 0 ? AQ_L2 : AQ_LINF};
    int32_t wrong = aq_prepare(&floats, stretch, stretches, &arena, plan->each, error);
    if (wrong) return -wrong;
    aq_plan here = *plan;
    here.offsets = floats.offsets, here.segments = floats.segments, here.scales = floats.scales;
    here.top = plan->s, here.keyed = here.numbered = 0;
    return write_frame(&here, &floats, NULL, 0, &arena, error);
}

/* -- reading */

typedef struct {
    const uint32_t *index;
    const int32_t *level;
    int64_t count;
} nonzeros;

static int32_t read_nonzeros(const uint8_t *body, const aq_header *h, nonzeros *found, aq_arena *arena, aq_each each,
                             aq_error *error) {
    int64_t d = (int64_t)h->dimension;
    int32_t wrong = aq_sparse_count(body, h->body_size, d, &found->count, error);
    if (wrong) return wrong;
    uint32_t *index = aq_take(arena, (uint64_t)found->count * sizeof *index);
    int32_t *level = aq_take(arena, (uint64_t)found->count * sizeof *level);
    found->index = index, found->level = level;
    if (arena->lacking) { /* aq_sparse_read takes some more: about as much again */
        arena->taken += 8 * (uint64_t)found->count + 65536;
        return aq_lacks(arena, error);
    }
    return aq_sparse_read(body, h->body_size, d, h->top, index, level, arena, each, error);
}

static void put(void *values, int32_t bytes, const nonzeros *found, int64_t dimension) {
    memset(values, 0, (uint64_t)dimension * (uint64_t)bytes);
    for (int64_t k = 0; k < found->count; k++) aq_put_level(values, bytes, found->index[k], found->level[k]);
}

AQ_API int32_t aq_decode(const uint8_t *frame, const aq_header *h, void *values, int32_t bytes, aq_memory memory,
                         aq_each each, aq_error *error) {
    const uint8_t *body = frame + h->body_at;
    int64_t d = (int64_t)h->dimension;
    aq_arena arena = aq_arena_of(memory);
    nonzeros found;
    int32_t wrong;
    switch (h->codec) {
    case AQ_FIXED:
        wrong = aq_fixed_check(body, h->body_size, d, h->top, h->s, each, error);
        if (!wrong && values) aq_fixed_read(body, d, h->top, values, bytes, each);
        return wrong;
    case AQ_SPARSE:
        wrong = read_nonzeros(body, h, &found, &arena, each, error);
        if (!wrong && values) put(values, bytes, &found, d);
        return wrong;
    case AQ_DENSE:
        return aq_dense_read(body, h->body_size, d, h->top, values, bytes, &arena, each, error);
    case AQ_RAW:
        return aq_fail(error, AQ_NOT_LEVELS, 0, 0, 0, 0);
    default:
        return aq_fail(error, AQ_CODEC, h->codec, 0, 0, 0);
    }
}

/* -- sums */

/* The largest magnitude of float32 values at any address, or infinity where one is not finite. */
static double largest_of(const uint8_t *values, int64_t dimension) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < dimension; i++) {
        uint32_t bits;
        memcpy(&bits, values + 4 * i, sizeof bits);
        bits &= 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    float value;
    memcpy(&value, &largest, sizeof value);
    return largest >= 0x7f800000u ? (double)INFINITY : value;
}

static int32_t within(double weight, double largest, double *bound, aq_error *error) {
    double size = weight < 0 ? -weight : weight;
    if (!(size * largest <= LARGEST_FLOAT)) {
        error->real[0] = largest, error->real[1] = weight;
        return aq_fail(error, AQ_WEIGHT, 0, 0, 0, 0);
    }
    if (*bound + size * largest > LARGEST_FLOAT) {
        error->real[0] = *bound + size * largest;
        return aq_fail(error, AQ_SUM, 0, 0, 0, 0);
    }
    *bound += size * largest;
    return AQ_FINE;
}

static int32_t add_raw(const uint8_t *body, const aq_header *h, double weight, float *total, double *bound,
                       aq_each each, aq_error *error) {
    int64_t d = (int64_t)h->dimension;
    if (h->body_size != 4 * h->dimension)
        return aq_fail(error, AQ_RAW_SIZE, (int64_t)h->body_size, (int64_t)h->scales, d, 0);
    double largest = largest_of(body, d);
    if (largest > 0x1.fffffep127) return aq_fail(error, AQ_RAW_FINITE, 0, 0, 0, 0);
    int32_t wrong = within(weight, largest, bound, error);
    float step = (float)weight;
    aq_sum sum = {NULL, 1, &step, total};
    if (!wrong) aq_add_floats(&sum, body, d, each);
    return wrong;
}

AQ_API int32_t aq_add(const uint8_t *frame, uint64_t size, uint64_t dimension, const aq_known *known, double weight,
                      float *total, double *bound, aq_memory memory, aq_each each, aq_error *error) {
    aq_header h;
    aq_arena arena = aq_arena_of(memory);
    int64_t one[2], *offsets = one, d = (int64_t)dimension;
    float step, *steps = &step;
    int32_t wrong = aq_check(frame, size, dimension, known, NULL, &h, error);
    if (!wrong && h.dimension != dimension)
        wrong = aq_fail(error, AQ_DIMENSION, (int64_t)h.dimension, (int64_t)dimension, 0, 0);
    if (wrong) return wrong;
    const uint8_t *body = frame + h.body_at;
    if (h.quantizer == 255) return add_raw(body, &h, weight, total, bound, each, error);
    const aq_traits *traits = aq_traits_of(h.quantizer);
    if (!traits->linear) return aq_fail(error, AQ_NOT_LINEAR, 0, 0, 0, 0);
    if (h.scales > 1) {
        offsets = aq_take(&arena, (h.scales + 1) * sizeof *offsets);
        steps = aq_take(&arena, h.scales * sizeof *steps);
    }
    int32_t bytes = aq_level_bytes(h.top);
    void *values = h.codec == AQ_DENSE ? aq_take(&arena, dimension * (uint64_t)bytes) : NULL;
    if (arena.lacking) return aq_lacks(&arena, error);
    aq_offsets(frame, &h, known, offsets);
    for (uint64_t j = 0; j < h.scales; j++) {
        float scale;
        memcpy(&scale, frame + h.scales_at + 4 * j, sizeof scale);
        steps[j] = (float)(weight * (double)scale / (traits->divides ? (double)h.s : 1.0));
    }
    nonzeros found = {0};
    switch (h.codec) {
    case AQ_FIXED: wrong = aq_fixed_check(body, h.body_size, d, h.top, h.s, each, error); break;
    case AQ_SPARSE: wrong = read_nonzeros(body, &h, &found, &arena, each, error); break;
    case AQ_DENSE: wrong = aq_dense_read(body, h.body_size, d, h.top, values, bytes, &arena, each, error); break;
    default: wrong = aq_fail(error, AQ_CODEC, h.codec, 0, 0, 0);
    }
    if (!wrong) wrong = within(weight, h.bound, bound, error);
    if (wrong) return wrong;
    aq_sum sum = {offsets, (int64_t)h.scales, steps, total};
    if (h.codec == AQ_FIXED) aq_fixed_add(&sum, body, d, h.top, each);
    else if (h.codec == AQ_SPARSE) aq_add_nonzeros(&sum, found.index, found.level, found.count);
    else aq_add_levels(&sum, values, bytes, d, each);
    return AQ_FINE;
}
