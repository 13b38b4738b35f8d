/* The paper's quantizer (eq. 5) on runs of elements: sums of squares, largest magnitudes, and rounding at random. The
 * arithmetic is fixed to the last bit, whatever the vectors: docs/wire-format.md has it in words. */
#include "vectors.h"

#define SQUARES_SIDE_BY_SIDE 32
#define VECTORS (SQUARES_SIDE_BY_SIDE / (AQ_WIDTH / 2))

#if AQ_VECTORS == 2
#define LOWER(a, b) (aq_ints) _mm512_min_epi32((__m512i)(a), (__m512i)(b))
#define ANY_NEGATIVE(a) (_mm512_movepi32_mask((__m512i)(a)) != 0)
#elif AQ_VECTORS == 1
#define LOWER(a, b) (aq_ints) _mm256_min_epi32((__m256i)(a), (__m256i)(b))
#define ANY_NEGATIVE(a) (_mm256_movemask_ps((__m256)(a)) != 0)
#else
#define LOWER(a, b) ((a) ^ (((a) ^ (b)) & ((b) < (a))))
#define ANY_NEGATIVE(a) ((a[0] | a[1] | a[2] | a[3]) < 0)
#endif

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
            aq_doubles value = aq_widen(x + i + v * (AQ_WIDTH / 2), 0xFFFFFFFF);
            part[v] += value * value;
        }
    }
    memcpy(sums, part, sizeof sums);
    for (int j = 0; j < 8; j++) total += (sums[j] + sums[j + 8]) + (sums[j + 16] + sums[j + 24]);
    for (; i < count; i++) total += (double)x[i] * (double)x[i];
    return total;
}

/* The bits of floats that are not negative are ordered like the floats, as signed integers too. */
static uint32_t largest(const float *x, int64_t count) {
    int32_t top = 0;
    for (int64_t i = 0; i < count; i++) {
        int32_t size;
        memcpy(&size, x + i, 4);
        size &= 0x7FFFFFFF;
        top = size > top ? size : top;
    }
    return (uint32_t)top;
}

/* |x| s / norm, rounded up with the probability of its fraction, never above s. In float32 the ratio is first rounded
 * to 21 bits: one that is off a level only by float32's rounding is put back on it. The bits of floats that are not
 * negative are ordered like the floats, and the smaller of two integers is one instruction. */
static inline int32_t magnitude(float x, float inverse, float top, uint32_t random) {
    float t = __builtin_fabsf(x) * inverse;
    int32_t bits, most;
    memcpy(&bits, &t, 4);
    memcpy(&most, &top, 4);
    bits = (bits + 4) & ~7;
    bits = bits < most ? bits : most;
    memcpy(&t, &bits, 4);
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

/* One of the two. wide: above AQ_SINGLE levels, in double. */
AQ_INLINE int32_t magnitude_of(int32_t wide, float x, const aq_stream *stream, uint32_t random) {
    return wide ? wide_magnitude(x, stream->wide, stream->s, random)
                : magnitude(x, stream->inverse, stream->top, random);
}

AQ_INLINE void round_all(int32_t bytes, int32_t wide, const float *restrict x, int64_t count, aq_stream stream,
                         void *restrict values) {
    for (int64_t i = 0; i < count; i++, stream.place += AQ_WEYL) {
        int32_t level = magnitude_of(wide, x[i], &stream, aq_draw(stream.place, stream.high));
        aq_put_level(values, bytes, i, x[i] < 0 ? -level : level);
    }
}

static void levels(const float *restrict x, int64_t count, const aq_stream *stream, void *restrict values,
                   int32_t bytes) {
    if (stream->s > AQ_SINGLE) AQ_BY_SIZE(bytes, round_all, 1, x, count, *stream, values);
    else AQ_BY_SIZE(bytes, round_all, 0, x, count, *stream, values);
}

/* The level with the sign of x above, which a level of 0 has not. */
static inline uint32_t signed_code(int32_t level, float x, int32_t down) {
    uint32_t sign;
    memcpy(&sign, &x, 4);
    return (uint32_t)level | (((uint32_t)level + 0x7FFFFFFF) & sign & 0x80000000u) >> down;
}

AQ_INLINE void code_all(int32_t wide, const float *restrict x, int64_t count, aq_stream stream, int32_t bits,
                        uint32_t *restrict out) {
    for (int64_t i = 0; i < count; i++, stream.place += AQ_WEYL) {
        int32_t level = magnitude_of(wide, x[i], &stream, aq_draw(stream.place, stream.high));
        out[i] = signed_code(level, x[i], 32 - bits);
    }
}

static void codes(const float *x, int64_t count, const aq_stream *stream, int32_t bits, uint32_t *out) {
    if (stream->s > AQ_SINGLE) code_all(1, x, count, *stream, bits, out);
    else code_all(0, x, count, *stream, bits, out);
}

/* 0 only where every level of a row is 0: the same random numbers, a slightly higher threshold. Where few levels are
 * not 0 it passes over most rows in less time than quantizing them takes. places: of the first elements. */
static inline int32_t may_hold(const float *x, const aq_stream *stream, aq_words places) {
    const float reach = 0x1p30f * (1 + 0x1p-16f);
    aq_ints hits = {0}, most = (aq_ints){0} + 0x4E800000; /* 2^30 */
    for (int32_t i = 0; i < AQ_ROW; i += AQ_WIDTH, places += AQ_WIDTH * AQ_WEYL) {
        aq_reals t;
        aq_words random = places;
        if (stream->s > AQ_SINGLE) {
            for (int32_t j = 0; j < AQ_WIDTH; j++) t[j] = (float)((double)__builtin_fabsf(x[i + j]) * stream->wide);
        } else {
            AQ_LOAD(t, x + i);
            t = (aq_reals)((aq_words)t & 0x7FFFFFFF) * stream->inverse;
        }
        t = (aq_reals)LOWER((aq_ints)(t * reach), most);
        random = (random ^ random >> 16) * AQ_MIX_1;
        random = (random ^ random >> 15 ^ stream->high) * AQ_MIX_2;
        random ^= random >> 16;
        hits |= (aq_ints)(random >> 2) - 1 - __builtin_convertvector(t, aq_ints);
    }
    return ANY_NEGATIVE(hits);
}

/* Append what is not 0 in a row. */
static inline int64_t append(const int32_t *row, int64_t size, uint32_t first, uint32_t *index, int32_t *level) {
#if AQ_VECTORS == 2
    if (size == AQ_ROW) { /* whole vectors are written, but not beyond as many places as there are elements */
        uint32_t *start = index;
        __m512i here = (__m512i)((aq_words){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} + first);
        for (int32_t i = 0; i < AQ_ROW; i += 16, here = _mm512_add_epi32(here, _mm512_set1_epi32(16))) {
            __m512i part = _mm512_loadu_si512(row + i);
            __mmask16 hits = _mm512_test_epi32_mask(part, part);
            _mm512_storeu_si512(index, _mm512_maskz_compress_epi32(hits, here));
            _mm512_storeu_si512(level, _mm512_maskz_compress_epi32(hits, part));
            index += __builtin_popcount(hits);
            level += __builtin_popcount(hits);
        }
        return index - start;
    }
#endif
    uint8_t slots[AQ_ROW + 1];
    int64_t hits = 0;
    for (int64_t j = 0; j < size; j++) { /* without a branch for each */
        slots[hits] = (uint8_t)j;
        hits += row[j] != 0;
    }
    for (int64_t k = 0; k < hits; k++) {
        index[k] = first + slots[k];
        level[k] = row[slots[k]];
    }
    return hits;
}

static int64_t find(const float *x, int64_t count, const aq_stream *stream, uint32_t first, uint32_t *index,
                    int32_t *level) {
    int64_t found = 0, start = 0;
    AQ_ALIGNED int32_t row[AQ_ROW];
    aq_stream here = *stream;
    aq_words places;
    for (uint32_t j = 0; j < AQ_WIDTH; j++) places[j] = here.place + j * AQ_WEYL;
    for (; start + AQ_ROW <= count; start += AQ_ROW, here.place += AQ_ROW * AQ_WEYL, places += AQ_ROW * AQ_WEYL) {
        for (int32_t i = 0; i < AQ_ROW; i += 16) __builtin_prefetch(x + start + i + AQ_AHEAD);
        if (!may_hold(x + start, stream, places)) continue;
        if (stream->s > AQ_SINGLE) round_all(4, 1, x + start, AQ_ROW, here, row);
        else round_all(4, 0, x + start, AQ_ROW, here, row);
        found += append(row, AQ_ROW, first + (uint32_t)start, index + found, level + found);
    }
    levels(x + start, count - start, &here, row, 4);
    return found + append(row, count - start, first + (uint32_t)start, index + found, level + found);
}

const aq_quantize_kernels AQ_NAME(aq_quantize_kernels) = {squares, largest, levels, codes, find};
