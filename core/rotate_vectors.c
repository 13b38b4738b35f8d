/* H D x and D H x of one block of 2^k elements: D is a diagonal of random signs, H the orthonormal Walsh-Hadamard
 * transform. Pairs at distance 1, 2, 4, ... become their sum and difference, in any order of the memory. */
#include "vectors.h"

#define NEAR 4096 /* elements that stay in the first-level cache through all their distances */

/* The factor comes first: no sum can then leave float32. */
static void scale_to(const float *restrict x, int64_t count, float factor, float *restrict out) {
    for (int64_t i = 0; i < count; i++) out[i] = x[i] * factor;
}

static void scale(float *v, int64_t count, float factor) {
    for (int64_t i = 0; i < count; i++) v[i] *= factor;
}

static void flip(float *v, int64_t count, uint32_t place, uint32_t high) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits, random = aq_draw(place + (uint32_t)i * AQ_WEYL, high);
        memcpy(&bits, v + i, 4);
        bits ^= random & 0x80000000u;
        memcpy(v + i, &bits, 4);
    }
}

/* Two distances in one pass over the memory: h and 2 h. */
static void four(float *restrict a, float *restrict b, float *restrict c, float *restrict d, int64_t h) {
    for (int64_t j = 0; j < h; j++) {
        float ab = a[j] + b[j], cd = c[j] + d[j], a_b = a[j] - b[j], c_d = c[j] - d[j];
        a[j] = ab + cd, b[j] = a_b + c_d, c[j] = ab - cd, d[j] = a_b - c_d;
    }
}

static void two(float *restrict a, float *restrict b, int64_t h) {
    for (int64_t j = 0; j < h; j++) {
        float sum = a[j] + b[j], difference = a[j] - b[j];
        a[j] = sum, b[j] = difference;
    }
}

/* Distances from h on, up to half the size. */
static void far(float *v, int64_t size, int64_t h) {
    for (; 4 * h <= size; h *= 4)
        for (int64_t i = 0; i < size; i += 4 * h) four(v + i, v + i + h, v + i + 2 * h, v + i + 3 * h, h);
    if (2 * h <= size)
        for (int64_t i = 0; i < size; i += 2 * h) two(v + i, v + i + h, h);
}

/* The distances within a vector: lane j is added to its partner, and the upper one of the two changes its sign. */
#if AQ_VECTORS == 2
#define LANES(f) f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7), f(8), f(9), f(10), f(11), f(12), f(13), f(14), f(15)
#elif AQ_VECTORS == 1
#define LANES(f) f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7)
#else
#define LANES(f) f(0), f(1), f(2), f(3)
#endif
#if defined(__clang__)
#define SHUFFLE(v, f) __builtin_shufflevector(v, v, LANES(f))
#else
#define SHUFFLE(v, f) __builtin_shuffle(v, (aq_ints){LANES(f)})
#endif
#define SIGN(j, h) ((j) & (h) ? 0x80000000u : 0)
#define PARTNER_1(j) ((j) ^ 1)
#define PARTNER_2(j) ((j) ^ 2)
#define PARTNER_4(j) ((j) ^ 4)
#define PARTNER_8(j) ((j) ^ 8)
#define SIGN_1(j) SIGN(j, 1)
#define SIGN_2(j) SIGN(j, 2)
#define SIGN_4(j) SIGN(j, 4)
#define SIGN_8(j) SIGN(j, 8)
#define DISTANCE(v, h) v = SHUFFLE(v, PARTNER_##h) + (aq_reals)((aq_words)v ^ (aq_words){LANES(SIGN_##h)})

static void near(float *v, int64_t size) {
    for (int64_t i = 0; i < size; i += AQ_WIDTH) {
        aq_reals lanes;
        AQ_LOAD(lanes, v + i);
        DISTANCE(lanes, 1);
        DISTANCE(lanes, 2);
#if AQ_VECTORS >= 1
        DISTANCE(lanes, 4);
#endif
#if AQ_VECTORS == 2
        DISTANCE(lanes, 8);
#endif
        AQ_STORE(v + i, lanes);
    }
}

static void hadamard(float *v, int64_t size) {
    if (size < AQ_WIDTH) {
        far(v, size, 1);
        return;
    }
    int64_t part = aq_least(size, NEAR);
    for (int64_t i = 0; i < size; i += part) {
        near(v + i, part);
        far(v + i, part, AQ_WIDTH);
    }
    far(v, size, part);
}

static void turn(const float *x, int64_t count, uint32_t place, uint32_t high, int32_t forward, float *out) {
    float factor = (float)(1.0 / __builtin_sqrt((double)count));
    if (x == out) scale(out, count, factor);
    else scale_to(x, count, factor, out);
    if (forward) flip(out, count, place, high);
    hadamard(out, count);
    if (!forward) flip(out, count, place, high);
}

const aq_rotate_kernels AQ_NAME(aq_rotate_kernels) = {turn};
