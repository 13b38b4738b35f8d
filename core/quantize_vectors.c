/* The paper's quantizer (eq. 5) on runs of elements: sums of squares, largest magnitudes, and rounding at random. The
 * arithmetic is fixed to the last bit, whatever the vectors: docs/wire-format.md has it in words. */
#include "vectors.h"

#define SQUARES_SIDE_BY_SIDE 32
#define VECTORS (SQUARES_SIDE_BY_SIDE / (AQ_WIDTH / 2))

typedef float half_reals __attribute__((vector_size(2 * AQ_WIDTH)));

/* 32 sums side by side: four rows of eight. The rows are added up as (1 + 2) + (3 + 4), then the eight in order, then
 * what is left one by one. */
static double squares(const float *x, int64_t count) {
    double sums[SQUARES_SIDE_BY_SIDE], total = 0.0;
    int64_t i = 0;
    aq_doubles part[VECTORS];
    for (int v = 0; v < VECTORS; v++) part[v] = (aq_doubles){0};
    for (; i + SQUARES_SIDE_BY_SIDE <= count; i += SQUARES_SIDE_BY_SIDE) {
        __builtin_prefetch(x + i + AQ_AHEAD);
        __builtin_prefetch(x + i + AQ_AHEAD + 16);
#pragma GCC unroll 16
        for (int v = 0; v < VECTORS; v++) {
            half_reals narrow;
            AQ_LOAD(narrow, x + i + v * (AQ_WIDTH / 2));
            aq_doubles value = __builtin_convertvector(narrow, aq_doubles);
            part[v] += value * value;
        }
    }
    memcpy(sums, part, sizeof sums);
    for (int j = 0; j < 8; j++) total += (sums[j] + sums[j + 8]) + (sums[j + 16] + sums[j + 24]);
    for (; i < count; i++) total += (double)x[i] * (double)x[i];
    return total;
}

static uint32_t largest(const float *x, int64_t count) {
    uint32_t top = 0, size;
    for (int64_t i = 0; i < count; i++) {
        memcpy(&size, x + i, 4);
        size &= 0x7FFFFFFF;
        top = size > top ? size : top;
    }
    return top;
}

/* |x| s / norm, rounded up with the probability of its fraction, never above s. In float32 the ratio is first rounded to
 * 21 bits: one that is off a level only by float32's rounding is put back on it. */
static inline int32_t magnitude(float x, float inverse, float top, uint32_t random) {
    float t = __builtin_fabsf(x) * inverse;
    uint32_t bits;
    memcpy(&bits, &t, 4);
    bits = (bits + 4) & 0xFFFFFFF8u;
    memcpy(&t, &bits, 4);
    t = t < top ? t : top;
    int32_t low = (int32_t)t;
    int32_t threshold = (int32_t)((t - (float)low) * 2147483648.0f);
    return low + ((int32_t)(random >> 1) < threshold);
}

static inline int32_t wide_magnitude(float x, double inverse, double top, uint32_t random) {
    double t = (double)__builtin_fabsf(x) * inverse + 0x1p-32; /* less than the random numbers resolve */
    t = t < top ? t : top;
    int32_t low = (int32_t)t;
    int32_t threshold = (int32_t)((t - (double)low) * 2147483648.0);
    return low + ((int32_t)(random >> 1) < threshold);
}

#define QUANTIZE(type, function, inverse, top)                                                                         \
    for (int64_t i = 0; i < count; i++) {                                                                              \
        int32_t level = function(x[i], inverse, top, aq_draw(place + (uint32_t)i * AQ_WEYL, high));                    \
        ((type *)values)[i] = (type)(x[i] < 0 ? -level : level);                                                       \
    }

static void levels(const float *restrict x, int64_t count, const aq_stream *stream, void *restrict values,
                   int32_t bytes) {
    uint32_t place = stream->place, high = stream->high;
    float inverse = stream->inverse, top = stream->top;
    double wide = stream->wide, wide_top = stream->s;
    if (stream->s > 4095) {
        if (bytes == 4) QUANTIZE(int32_t, wide_magnitude, wide, wide_top)
        else QUANTIZE(int16_t, wide_magnitude, wide, wide_top)
    } else if (bytes == 1) QUANTIZE(int8_t, magnitude, inverse, top)
    else if (bytes == 2) QUANTIZE(int16_t, magnitude, inverse, top)
    else QUANTIZE(int32_t, magnitude, inverse, top)
}

static void codes(const float *restrict x, const float *restrict each, const double *restrict wide,
                  const aq_stream *stream, int32_t bits, uint32_t *restrict out) {
    uint32_t place = stream->place, high = stream->high, sign = 1u << (bits - 1);
    float top = stream->top;
    double wide_top = stream->s;
    if (stream->s > 4095) {
        for (uint32_t i = 0; i < AQ_BLOCK; i++) {
            int32_t level = wide_magnitude(x[i], wide[i], wide_top, aq_draw(place + i * AQ_WEYL, high));
            out[i] = (uint32_t)level | (x[i] < 0 && level > 0 ? sign : 0);
        }
        return;
    }
    for (uint32_t row = 0; row < AQ_BLOCK; row += 32) {
        __builtin_prefetch(x + row + AQ_AHEAD);
        __builtin_prefetch(x + row + AQ_AHEAD + 16);
        for (uint32_t i = row; i < row + 32; i++) {
            int32_t level = magnitude(x[i], each[i], top, aq_draw(place + i * AQ_WEYL, high));
            out[i] = (uint32_t)level | (x[i] < 0 && level > 0 ? sign : 0);
        }
    }
}

/* 0 only where every level of a row is 0: the same random numbers, a slightly higher threshold. Where few levels are not
 * 0 it passes over most rows in less time than quantizing them takes. */
static inline uint32_t may_hold(const float *x, const aq_stream *stream, uint32_t place) {
    const float reach = 0x1p30f * (1 + 0x1p-16f), most = 0x1p30f;
    float inverse = stream->inverse;
    uint32_t high = stream->high, hits = 0;
    double wide = stream->wide;
    if (stream->s > 4095)
        for (uint32_t i = 0; i < AQ_ROW; i++) {
            float t = (float)((double)__builtin_fabsf(x[i]) * wide) * reach;
            hits |= (int32_t)(aq_draw(place + i * AQ_WEYL, high) >> 2) <= (int32_t)(t < most ? t : most);
        }
    else
        for (uint32_t i = 0; i < AQ_ROW; i++) {
            float t = __builtin_fabsf(x[i]) * inverse * reach;
            hits |= (int32_t)(aq_draw(place + i * AQ_WEYL, high) >> 2) <= (int32_t)(t < most ? t : most);
        }
    return hits;
}

static int64_t find(const float *x, int64_t count, const aq_stream *stream, uint32_t first, uint32_t *index,
                    int32_t *level) {
    int64_t found = 0;
    int32_t row[AQ_ROW];
    uint8_t slots[AQ_ROW + 1];
    aq_stream here = *stream;
    for (int64_t start = 0; start < count; start += AQ_ROW, here.place += AQ_ROW * AQ_WEYL) {
        int64_t size = aq_least(AQ_ROW, count - start), hits = 0;
        __builtin_prefetch(x + start + AQ_AHEAD);
        __builtin_prefetch(x + start + AQ_AHEAD + 16);
        __builtin_prefetch(x + start + AQ_AHEAD + 32);
        __builtin_prefetch(x + start + AQ_AHEAD + 48);
        if (size == AQ_ROW && !may_hold(x + start, &here, here.place)) continue;
        levels(x + start, size, &here, row, 4);
        for (int64_t j = 0; j < size; j++) { /* without a branch for each */
            slots[hits] = (uint8_t)j;
            hits += row[j] != 0;
        }
        for (int64_t k = 0; k < hits; k++) {
            index[found + k] = first + (uint32_t)start + slots[k];
            level[found + k] = row[slots[k]];
        }
        found += hits;
    }
    return found;
}

const aq_quantize_kernels AQ_NAME(aq_quantize_kernels) = {squares, largest, levels, codes, find};
