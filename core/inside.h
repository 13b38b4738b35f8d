/* What the files of the core share. */
#ifndef AQ_INSIDE_H
#define AQ_INSIDE_H

#include <string.h>

#include "aq.h"

#define AQ_TILE 65536  /* elements: bodies are cut at multiples of it, and sums of squares are added up in its pieces */
#define AQ_BLOCK 1024  /* elements of a block of the fixed code */
#define AQ_MOST_BLOCK (1 << 20) /* elements of a rotated block */
#define AQ_LARGEST_BLOCK 65536  /* as a rule: more do not fit a core's cache */

static inline int32_t aq_fail(aq_error *error, int32_t code, int64_t a, int64_t b, int64_t c, int64_t d) {
    error->code = code;
    error->numbers[0] = a, error->numbers[1] = b, error->numbers[2] = c, error->numbers[3] = d;
    return code;
}

/* Take memory, aligned to 64 bytes. Where there is none left, the result must not be used: data is NULL from then on and
 * size counts what is lacking, so that a function can take all that it needs and look once. */
typedef struct {
    uint8_t *data;
    uint64_t left, taken;
    int32_t lacking;
} aq_arena;

static inline aq_arena aq_arena_of(aq_memory memory) {
    aq_arena arena = {memory.data, memory.size, 0, 0};
    return arena;
}

static inline void *aq_take(aq_arena *arena, uint64_t bytes) {
    uint64_t rounded = (bytes + 63) & ~(uint64_t)63;
    uint8_t *here = arena->data;
    arena->taken += rounded;
    if (arena->lacking || rounded > arena->left) {
        arena->lacking = 1;
        return NULL;
    }
    if (rounded) arena->data += rounded; /* NULL + 0 is undefined */
    arena->left -= rounded;
    return here;
}

static inline int32_t aq_lacks(const aq_arena *arena, aq_error *error) {
    return arena->lacking ? aq_fail(error, AQ_MEMORY, (int64_t)arena->taken, 0, 0, 0) : AQ_FINE;
}

static inline void aq_run(aq_each each, aq_work work, void *context, int64_t units, int64_t smallest) {
    if (units <= 0) return;
    if (each && units >= 2 * smallest)
        each(work, context, units, smallest);
    else
        work(context, 0, units);
}

static inline int64_t aq_least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int32_t aq_floor_log2(uint64_t n) { return 63 - __builtin_clzll(n); } /* n > 0 */

/* The segment that holds an element. */
static inline int64_t aq_segment_at(const int64_t *offsets, int64_t segments, int64_t position) {
    int64_t low = 0, high = segments;
    while (high - low > 1) {
        int64_t middle = (low + high) >> 1;
        if (offsets[middle] <= position) low = middle; else high = middle;
    }
    return low;
}

/* Levels have 1, 2 or 4 bytes. A loop over them is a function whose first argument is that number: AQ_BY_SIZE compiles it
 * for each of the three. */
#define AQ_INLINE static inline __attribute__((always_inline))
#define AQ_BY_SIZE(bytes, function, ...)                                                                               \
    ((bytes) == 1 ? function(1, __VA_ARGS__) : (bytes) == 2 ? function(2, __VA_ARGS__) : function(4, __VA_ARGS__))

AQ_INLINE int32_t aq_level_at(const void *values, int32_t bytes, int64_t i) {
    return bytes == 1 ? ((const int8_t *)values)[i] : bytes == 2 ? ((const int16_t *)values)[i] : ((const int32_t *)values)[i];
}

AQ_INLINE void aq_put_level(void *values, int32_t bytes, int64_t i, int32_t level) {
    if (bytes == 1) ((int8_t *)values)[i] = (int8_t)level;
    else if (bytes == 2) ((int16_t *)values)[i] = (int16_t)level;
    else ((int32_t *)values)[i] = level;
}

static inline int32_t aq_level_bytes(int64_t top) { return top <= 127 ? 1 : top <= 32767 ? 2 : 4; }
static inline int64_t aq_tiles(int64_t dimension) { return (dimension + AQ_TILE - 1) / AQ_TILE; }

/* Little-endian base 128, in one to five bytes, as few as a number needs; returns the place behind it, or 0 and *wrong:
 * AQ_NUMBER or AQ_NUMBER_END. */
uint64_t aq_read_varint(const uint8_t *data, uint64_t place, uint64_t end, uint64_t *number, int32_t *wrong);
static inline uint64_t aq_write_varint(uint8_t *out, uint64_t place, uint64_t number) {
    for (; number >= 128; number >>= 7) out[place++] = (uint8_t)(number & 127) | 128;
    out[place++] = (uint8_t)number;
    return place;
}

/* log2 of a positive number, from additions, multiplications and divisions alone: the same on every machine. */
double aq_log2(double x);

/* -- quantize.c: a vector with the norms of its segments, ready to be rounded by the paper's quantizer */
typedef struct {
    const float *x;
    const int64_t *offsets;
    int64_t segments, dimension;
    const float *scales;  /* stretch x norm, of each segment */
    const float *inverse; /* s / scale in float32; used where s <= AQ_SINGLE */
    const double *wide;   /* s / scale in double; used above */
    uint32_t s, low, high; /* the two halves of the key */
    int32_t norm;
} aq_floats;

/* How a run of elements is rounded. place: of the first one in the Weyl sequence. */
typedef struct {
    float inverse, top;
    double wide;
    uint32_t s, place, high;
} aq_stream;

int32_t aq_prepare(aq_floats *floats, const double *stretch, int64_t stretches, aq_arena *arena, aq_each each,
                   aq_error *error); /* x, offsets, segments, dimension, s, low, high and norm are given */
/* Elements from `position` on, all in one segment and ready to be rounded; returns their number. segment: one that is
 * not behind them, then theirs. x: where they are, perhaps in `room`, which holds AQ_BLOCK. */
int64_t aq_next_run(const aq_floats *floats, int64_t position, int64_t stop, int64_t *segment, float *room,
                    const float **x, aq_stream *stream);
void aq_levels_of(const aq_floats *floats, void *values, int32_t bytes, aq_each each);
/* The elements that are not 0, in order. counts[t]: how many there are in tile t. Returns their number, or -1 where they
 * are more than `room`. */
int64_t aq_find_floats(const aq_floats *floats, uint32_t *index, int32_t *level, int64_t room, int64_t *counts,
                       aq_each each);
/* The expected share of non-zeros in a sample. It decides which way is taken to the answer, not the answer. */
double aq_guess_density(const aq_floats *floats);

/* -- fixed.c */
static inline int32_t aq_code_bits(int64_t top) { return aq_floor_log2((uint64_t)top) + 2; }
static inline uint64_t aq_fixed_size(int64_t dimension, int64_t top) {
    uint64_t bits = (uint64_t)aq_code_bits(top), rest = (uint64_t)dimension % AQ_BLOCK;
    return (uint64_t)dimension / AQ_BLOCK * (AQ_BLOCK / 8) * bits + (rest * bits + 7) / 8;
}
void aq_fixed_write(const void *values, int32_t bytes, int64_t dimension, int64_t top, uint8_t *body, aq_each each);
void aq_fixed_compress(const aq_floats *floats, uint8_t *body, aq_each each);
int32_t aq_fixed_check(const uint8_t *body, uint64_t size, int64_t dimension, int64_t top, uint32_t s, aq_each each,
                       aq_error *error);
void aq_fixed_read(const uint8_t *body, int64_t dimension, int64_t top, void *values, int32_t bytes, aq_each each);

/* A sum of vectors, and what a level of each segment adds to it. */
typedef struct {
    const int64_t *offsets;
    int64_t segments;
    const float *steps;
    float *total;
} aq_sum;
void aq_fixed_add(const aq_sum *sum, const uint8_t *body, int64_t dimension, int64_t top, aq_each each);

/* -- add.c: the same for levels, for a part of them, for a list of those that are not 0, and for floats (one step) */
void aq_add_levels(const aq_sum *sum, const void *values, int32_t bytes, int64_t dimension, aq_each each);
void aq_add_range(const aq_sum *sum, const void *values, int32_t bytes, int64_t position, int64_t stop);
void aq_add_nonzeros(const aq_sum *sum, const uint32_t *index, const int32_t *level, int64_t count);
void aq_add_floats(const aq_sum *sum, const uint8_t *values, int64_t dimension, aq_each each);

/* -- sparse.c */
int64_t aq_find_levels(const void *values, int32_t bytes, int64_t dimension, uint32_t *index, int32_t *level,
                       int64_t room, int64_t *counts, aq_each each); /* see aq_find_floats */
/* Returns the body's size, or a negative number where `room` does not hold it or memory is lacking. */
int64_t aq_sparse_write(const uint32_t *index, const int32_t *level, int64_t count, const int64_t *counts,
                        int64_t dimension, uint8_t *body, uint64_t room, aq_arena *arena, aq_each each,
                        aq_error *error);
int32_t aq_sparse_count(const uint8_t *body, uint64_t size, int64_t dimension, int64_t *count, aq_error *error);
int32_t aq_sparse_read(const uint8_t *body, uint64_t size, int64_t dimension, int64_t top, uint32_t *index,
                       int32_t *level, aq_arena *arena, aq_each each, aq_error *error);

/* -- dense.c */
typedef struct aq_dense_plan aq_dense_plan; /* table, states, exponent, the first bytes, and about how many in all */
int64_t aq_dense_write(const void *values, int32_t bytes, int64_t dimension, int64_t top, uint8_t *body, uint64_t room,
                       aq_arena *arena, aq_each each, aq_error *error);
/* values == NULL: the body is only checked. */
int32_t aq_dense_read(const uint8_t *body, uint64_t size, int64_t dimension, int64_t top, void *values, int32_t bytes,
                      aq_arena *arena, aq_each each, aq_error *error);

/* -- auto.c: the smallest body, from the histogram of the levels and never by encoding twice. *codec: which it is. */
int64_t aq_auto_write(const void *values, int32_t bytes, int64_t dimension, int64_t top, uint8_t *body, uint64_t room,
                      int32_t *codec, aq_arena *arena, aq_each each, aq_error *error);
int64_t aq_auto_compress(const aq_floats *floats, uint8_t *body, uint64_t room, int32_t *codec, aq_arena *arena,
                         aq_each each, aq_error *error);

#endif
