/* Vectors of a processor. A file whose name ends in _vectors.c is compiled once for each kind of them, with AQ_VECTORS
 * set to its number: 0 portable (whatever the compiler makes of plain loops; NEON on ARM), 1 AVX2, 2 AVX-512. Each
 * build has its functions in a table of its own, AQ_NAME(aq_..._kernels); AQ_PICK finds the one that this machine
 * uses. */
#ifndef AQ_VECTORS_H
#define AQ_VECTORS_H

#include "inside.h"

#define AQ_JOIN_(name, number) name##_##number
#define AQ_JOIN(name, number) AQ_JOIN_(name, number)
#define AQ_NAME(name) AQ_JOIN(name, AQ_VECTORS)

/* dispatch.c sets them when the library is loaded. */
extern int32_t aq_vectors; /* 0 to 2 */
extern int32_t aq_folds;   /* carry-less multiplications for checksums: 0 none, 1 of 16 bytes, 2 of 64 */

#if defined(__x86_64__) && !defined(AQ_PORTABLE)
#define AQ_DECLARE(type, name) extern const type name##_0, name##_1, name##_2
#define AQ_PICK(name) (aq_vectors == 2 ? &name##_2 : aq_vectors == 1 ? &name##_1 : &name##_0)
#else
#define AQ_DECLARE(type, name) extern const type name##_0
#define AQ_PICK(name) (&name##_0)
#endif

/* Memory is read and written at any address. */
#ifdef AQ_VECTORS
#if AQ_VECTORS > 0
#include <immintrin.h>
#endif
#define AQ_WIDTH (AQ_VECTORS == 2 ? 16 : AQ_VECTORS == 1 ? 8 : 4) /* words in a vector */
typedef uint32_t aq_words __attribute__((vector_size(4 * AQ_WIDTH)));
typedef int32_t aq_ints __attribute__((vector_size(4 * AQ_WIDTH)));
typedef float aq_reals __attribute__((vector_size(4 * AQ_WIDTH)));
typedef double aq_doubles __attribute__((vector_size(4 * AQ_WIDTH))); /* half as many */
#define AQ_LOAD(to, from) memcpy(&(to), (from), sizeof(to))
#define AQ_STORE(to, from) memcpy((to), &(from), sizeof(from))

/* A vector of floats, as doubles; kept: the bits of each float that are not cleared. GCC 12 makes five instructions of
 * __builtin_convertvector for the larger vectors. */
static inline aq_doubles aq_widen(const float *x, uint32_t kept) {
    typedef uint32_t half_words __attribute__((vector_size(2 * AQ_WIDTH)));
    half_words words;
    AQ_LOAD(words, x);
    words &= kept;
#if AQ_VECTORS == 2
    return (aq_doubles)_mm512_cvtps_pd((__m256)words);
#elif AQ_VECTORS == 1
    return (aq_doubles)_mm256_cvtps_pd((__m128)words);
#else
    typedef float half_reals __attribute__((vector_size(2 * AQ_WIDTH)));
    return __builtin_convertvector((half_reals)words, aq_doubles);
#endif
}
#endif

#define AQ_ALIGNED _Alignas(64) /* arrays that vectors go through: a vector over two lines of the cache takes longer */

/* How the stream of random numbers goes on from element to element: see docs/wire-format.md. */
#define AQ_WEYL 0x9E3779B9u
#define AQ_MIX_1 0x7FEB352Du
#define AQ_MIX_2 0x846CA68Bu
#define AQ_AHEAD 1024 /* elements between those in work and those that memory is asked for */
#define AQ_SINGLE 4095 /* levels up to which the paper's quantizer computes in float32 */
#define AQ_ROW 64     /* elements that a search passes over together */

static inline uint32_t aq_draw(uint32_t x, uint32_t high) { /* 32 random bits for a place in the Weyl sequence */
    x = (x ^ x >> 16) * AQ_MIX_1;
    x = (x ^ x >> 15 ^ high) * AQ_MIX_2;
    return x ^ x >> 16;
}

/* -- quantize_vectors.c */
typedef struct {
    double (*squares)(const float *x, int64_t count);
    uint32_t (*largest)(const float *x, int64_t count); /* of the magnitudes' bits */
    void (*levels)(const float *x, int64_t count, const aq_stream *stream, void *values, int32_t bytes);
    /* The code of each element: its level, and its sign above. */
    void (*codes)(const float *x, int64_t count, const aq_stream *stream, int32_t bits, uint32_t *codes);
    /* Append the elements that are not 0, index and level; first: the index of x[0]. There is room for all. */
    int64_t (*find)(const float *x, int64_t count, const aq_stream *stream, uint32_t first, uint32_t *index,
                    int32_t *level);
} aq_quantize_kernels;
AQ_DECLARE(aq_quantize_kernels, aq_quantize_kernels);

/* -- fixed_vectors.c: blocks of 1024 */
typedef struct {
    void (*pack)(const uint32_t *codes, int32_t bits, uint8_t *words);
    void (*unpack)(const uint8_t *words, int32_t bits, uint32_t *codes);
    void (*add)(const uint8_t *words, int32_t bits, float step, float *total);
    int32_t (*above)(const uint8_t *words, int32_t bits, int32_t top); /* whether a level is above top */
    void (*to_codes)(const void *values, int32_t bytes, int64_t count, int32_t bits, uint32_t *codes);
    void (*to_levels)(const uint32_t *codes, int32_t bits, int64_t count, void *values, int32_t bytes);
    void (*add_levels)(const void *values, int32_t bytes, int64_t count, float step, float *total);
} aq_fixed_kernels;
AQ_DECLARE(aq_fixed_kernels, aq_fixed_kernels);

/* -- rotate_vectors.c */
typedef struct {
    void (*turn)(const float *x, int64_t count, uint32_t place, uint32_t high, int32_t forward, float *out);
} aq_rotate_kernels;
AQ_DECLARE(aq_rotate_kernels, aq_rotate_kernels);

/* -- rounding_vectors.c: one segment, or a part of one */
typedef struct {
    void (*nearest)(const float *x, int64_t count, float inverse, int32_t top, void *values, int32_t bytes);
    void (*exponents)(const float *x, int64_t count, double inverse, uint32_t s, uint32_t place, uint32_t high,
                      void *values, int32_t bytes);
    void (*lattice)(const float *x, int64_t count, double inverse, uint32_t place, uint32_t high, void *values,
                    int32_t bytes);
    void (*points)(const void *values, int32_t bytes, int64_t count, double step, uint32_t place, uint32_t high,
                   float *out);
    double (*steps)(const float *x, int64_t count, double inverse, double step, int64_t top, const double *centres,
                    void *values, int32_t bytes);
    double (*centres)(const float *x, int64_t count, double inverse, uint32_t s, const double *edges,
                      const double *centres, void *values, int32_t bytes);
} aq_rounding_kernels;
AQ_DECLARE(aq_rounding_kernels, aq_rounding_kernels);

#endif
