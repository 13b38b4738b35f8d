/* Rounds of the dense codec's rANS in vectors: of 16 states with AVX-512, of 8 with AVX2; elsewhere one by one. Every
 * way writes the same bytes. Table rows are loaded one by one: gather instructions take longer on most processors. */
#include "dense.h"

#define INLINE static inline __attribute__((always_inline))

/* -- one by one */

INLINE uint16_t *encode_each(const void *symbols, int32_t bytes, int64_t rounds, int32_t lanes, int32_t lowest,
                             const uint64_t *rows, uint32_t *states, uint16_t *words) {
    uint32_t x[AQ_LANES];
    memcpy(x, states, 4 * (size_t)lanes);
    for (int64_t i = rounds * lanes; i > 0;) {
        i -= lanes;
        for (int32_t lane = 0; lane < lanes; lane++) {
            int32_t symbol = bytes == 1 ? ((const int8_t *)symbols)[i + lane] : 0;
            if (bytes == 2) {
                int16_t two;
                memcpy(&two, (const uint8_t *)symbols + 2 * (i + lane), 2);
                symbol = two;
            }
            x[lane] = aq_encode_symbol(x[lane], rows[symbol - lowest], &words);
        }
    }
    memcpy(states, x, 4 * (size_t)lanes);
    return words;
}

INLINE void store_symbol(void *symbols, int32_t bytes, int64_t i, int32_t symbol) {
    if (bytes == 1) ((int8_t *)symbols)[i] = (int8_t)symbol;
    if (bytes > 1) memcpy((uint8_t *)symbols + bytes * i, &symbol, (size_t)bytes);
}

INLINE int64_t decode_each(const uint8_t *words, int64_t *place, const uint64_t *slots, uint32_t *states, void *symbols,
                           int32_t bytes, int64_t rounds, int32_t lanes) {
    uint32_t x[AQ_LANES];
    int64_t p = *place, done = 0;
    memcpy(x, states, 4 * (size_t)lanes);
    for (; done < rounds && p >= lanes; done++)
        for (int32_t lane = lanes - 1; lane >= 0; lane--) {
            uint32_t state = x[lane];
            store_symbol(symbols, bytes, done * lanes + lane, aq_decode_symbol(&state, slots[state & (AQ_SLOTS - 1)]));
            uint32_t empty = state < AQ_FLOOR, word = aq_word(words, p - 1);
            p -= empty;
            x[lane] = empty ? state << 16 | word : state;
        }
    memcpy(states, x, 4 * (size_t)lanes);
    *place = p;
    return done;
}

/* -- in vectors */

#if AQ_VECTORS == 2
#include <immintrin.h>
#define WIDTH 16
typedef __m512i vector;
typedef __mmask16 mask;
#define ALL(number) _mm512_set1_epi32((int)(number))
#define LOAD(from) _mm512_loadu_si512(from)
#define STORE(to, a) _mm512_storeu_si512(to, a)
#define ADD _mm512_add_epi32
#define SUB _mm512_sub_epi32
#define TIMES _mm512_mullo_epi32
#define AND _mm512_and_si512
#define OR _mm512_or_si512
#define RIGHT _mm512_srli_epi32
#define SIGNED_RIGHT _mm512_srai_epi32
#define LEFT _mm512_slli_epi32
#define RIGHT_BY _mm512_srlv_epi32
#define LEFT_BY _mm512_sllv_epi32
#define AT_LEAST _mm512_cmpge_epu32_mask
#define BELOW _mm512_cmplt_epu32_mask
#define CHOOSE(m, yes, no) _mm512_mask_blend_epi32(m, no, yes)
#define COUNT(m) __builtin_popcount(m)
#define COMPRESS(m, a) _mm512_maskz_compress_epi32(m, a)
#define EXPAND(m, a) _mm512_maskz_expand_epi32(m, a)
#define TIMES_FLOAT(a, f) _mm512_cvttps_epi32(_mm512_mul_ps(_mm512_cvtepi32_ps(a), _mm512_castsi512_ps(f)))
#define LOAD_BYTES(from) _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(from)))
#define LOAD_HALVES(from) _mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)(from)))
#define LOAD_WORDS(from) _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(from)))
#define STORE_BYTES(to, a) _mm_storeu_si128((__m128i *)(to), _mm512_cvtepi32_epi8(a))
#define STORE_HALVES(to, a) _mm256_storeu_si256((__m256i *)(to), _mm512_cvtepi32_epi16(a))

INLINE __m128i two(const uint64_t *table, const uint32_t *at) {
    __m128i low = _mm_loadl_epi64((const __m128i *)(table + at[0]));
    return _mm_castpd_si128(_mm_loadh_pd(_mm_castsi128_pd(low), (const double *)(table + at[1])));
}
INLINE __m512i eight(const uint64_t *table, const uint32_t *at) {
    __m512i all = _mm512_castsi128_si512(two(table, at));
    __m256i lower = _mm256_inserti128_si256(_mm512_castsi512_si256(all), two(table, at + 4), 1);
    __m256i upper = _mm256_inserti128_si256(_mm256_castsi128_si256(two(table, at + 8)), two(table, at + 12), 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(lower), upper, 1);
}
/* The lower and the upper words of table[places]. Shuffles of floats take two of each vector's every four: the entries
 * are laid out so that this puts them in order. */
INLINE void look_up(const uint64_t *table, vector places, vector *low, vector *high) {
    uint32_t at[WIDTH] __attribute__((aligned(64)));
    _mm512_store_si512(at, places);
    __m512 a = _mm512_castsi512_ps(eight(table, at)), b = _mm512_castsi512_ps(eight(table, at + 2));
    *low = _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88));
    *high = _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xDD));
}

#elif AQ_VECTORS == 1
#include <immintrin.h>
#define WIDTH 8
typedef __m256i vector;
typedef __m256i mask;
#define ALL(number) _mm256_set1_epi32((int)(number))
#define LOAD(from) _mm256_loadu_si256((const __m256i *)(from))
#define STORE(to, a) _mm256_storeu_si256((__m256i *)(to), a)
#define ADD _mm256_add_epi32
#define SUB _mm256_sub_epi32
#define TIMES _mm256_mullo_epi32
#define AND _mm256_and_si256
#define OR _mm256_or_si256
#define RIGHT _mm256_srli_epi32
#define SIGNED_RIGHT _mm256_srai_epi32
#define LEFT _mm256_slli_epi32
#define RIGHT_BY _mm256_srlv_epi32
#define LEFT_BY _mm256_sllv_epi32
#define AT_LEAST(a, b) _mm256_cmpeq_epi32(_mm256_max_epu32(a, b), a)
#define BELOW(a, b) _mm256_cmpgt_epi32(b, a) /* of numbers below 2^31 */
#define CHOOSE(m, yes, no) _mm256_blendv_epi8(no, yes, m)
#define BITS(m) ((unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(m)))
#define COUNT(m) __builtin_popcount(BITS(m))
#define MOVE(orders, m, a) \
    _mm256_permutevar8x32_epi32(a, _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(orders + BITS(m)))))
#define COMPRESS(m, a) MOVE(compress_orders, m, a)
#define EXPAND(m, a) MOVE(expand_orders, m, a)
#define TIMES_FLOAT(a, f) _mm256_cvttps_epi32(_mm256_mul_ps(_mm256_cvtepi32_ps(a), _mm256_castsi256_ps(f)))
#define LOAD_BYTES(from) _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(from)))
#define LOAD_HALVES(from) _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)(from)))
#define LOAD_WORDS(from) _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(from)))
#define STORE_BYTES(to, a) _mm_storel_epi64((__m128i *)(to), narrow(a, 0x0C080400, -1))
#define STORE_HALVES(to, a) _mm_storeu_si128((__m128i *)(to), narrow(a, 0x05040100, 0x0D0C0908))

/* For each mask the order of the lanes: the chosen ones to the front, or the first ones to the chosen lanes. */
#define BIT(m, i) ((uint64_t)(m) >> (i) & 1)
#define BEFORE4(m, i) ((i > 0) * BIT(m, 0) + (i > 1) * BIT(m, 1) + (i > 2) * BIT(m, 2) + (i > 3) * BIT(m, 3))
#define BEFORE(m, i) (BEFORE4(m, i) + (i > 4 ? BEFORE4(m >> 4, (i - 4)) : 0))
#define TAKE(m, i) (BIT(m, i) * (uint64_t)(i) << 8 * BEFORE(m, i))
#define GIVE(m, i) (BEFORE(m, i) << 8 * (i))
#define EACH8(f, m) f(m, 0) | f(m, 1) | f(m, 2) | f(m, 3) | f(m, 4) | f(m, 5) | f(m, 6) | f(m, 7)
#define ROW4(f, m) EACH8(f, (m)), EACH8(f, (m + 1)), EACH8(f, (m + 2)), EACH8(f, (m + 3))
#define ROW16(f, m) ROW4(f, m), ROW4(f, (m + 4)), ROW4(f, (m + 8)), ROW4(f, (m + 12))
#define ROW64(f, m) ROW16(f, m), ROW16(f, (m + 16)), ROW16(f, (m + 32)), ROW16(f, (m + 48))
static const uint64_t compress_orders[256] = {ROW64(TAKE, 0), ROW64(TAKE, 64), ROW64(TAKE, 128), ROW64(TAKE, 192)};
static const uint64_t expand_orders[256] = {ROW64(GIVE, 0), ROW64(GIVE, 64), ROW64(GIVE, 128), ROW64(GIVE, 192)};

INLINE __m128i two(const uint64_t *table, const uint32_t *at) {
    __m128i low = _mm_loadl_epi64((const __m128i *)(table + at[0]));
    return _mm_castpd_si128(_mm_loadh_pd(_mm_castsi128_pd(low), (const double *)(table + at[1])));
}
INLINE __m256 four(const uint64_t *table, const uint32_t *at) {
    __m256i lower = _mm256_castsi128_si256(two(table, at));
    return _mm256_castsi256_ps(_mm256_inserti128_si256(lower, two(table, at + 4), 1));
}
/* The lower and the upper words of table[places]. Shuffles of floats take two of each vector's every four: the entries
 * are laid out so that this puts them in order. */
INLINE void look_up(const uint64_t *table, vector places, vector *low, vector *high) {
    uint32_t at[WIDTH] __attribute__((aligned(32)));
    _mm256_store_si256((__m256i *)at, places);
    __m256 a = four(table, at), b = four(table, at + 2);
    *low = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88));
    *high = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xDD));
}
/* The bytes of each half of `a` that the orders name, from both halves one behind the other. */
INLINE __m128i narrow(vector a, int first, int second) {
    __m256i moved = _mm256_shuffle_epi8(a, _mm256_setr_epi32(first, second, -1, -1, first, second, -1, -1));
    __m128i low = _mm256_castsi256_si128(moved), high = _mm256_extracti128_si256(moved, 1);
    return second < 0 ? _mm_unpacklo_epi32(low, high) : _mm_unpacklo_epi64(low, high);
}
#endif

#if AQ_VECTORS
#define EACH _Pragma("GCC unroll 8")

INLINE uint16_t *encode_vectors(const void *symbols, int32_t bytes, int64_t rounds, int32_t lanes, int32_t lowest,
                                const uint64_t *rows, uint32_t *states, uint16_t *words) {
    vector lane[AQ_LANES / WIDTH];
    EACH for (int v = 0; v < lanes / WIDTH; v++) lane[v] = LOAD(states + v * WIDTH);
    const uint8_t *here = (const uint8_t *)symbols + rounds * lanes * bytes;
    for (int64_t round = 0; round < rounds; round++) {
        here -= lanes * bytes;
        EACH for (int v = 0; v < lanes / WIDTH; v++) {
            vector x = lane[v], reciprocal, row;
            vector symbol = bytes == 1 ? LOAD_BYTES(here + v * WIDTH) : LOAD_HALVES(here + 2 * v * WIDTH);
            look_up(rows, SUB(symbol, ALL(lowest)), &reciprocal, &row);
            vector frequency = ADD(AND(row, ALL(4095)), ALL(1)), width = RIGHT(row, 28);
            vector bias = AND(RIGHT(row, 12), ALL(65535));
            mask full = AT_LEAST(x, LEFT_BY(frequency, SUB(ALL(19), width)));
            vector out = COMPRESS(full, x);
            STORE_HALVES(words, out);
            words += COUNT(full);
            x = CHOOSE(full, RIGHT(x, 16), x);
            /* The quotient is below 2^19: right as a float or, as the reciprocal is rounded down, one less. */
            vector quotient = TIMES_FLOAT(x, reciprocal);
            vector rest = SUB(x, TIMES(quotient, frequency));
            mask less = AT_LEAST(rest, frequency);
            rest = CHOOSE(less, SUB(rest, frequency), rest);
            quotient = CHOOSE(less, ADD(quotient, ALL(1)), quotient);
            lane[v] = ADD(LEFT_BY(quotient, ADD(width, ALL(AQ_SLOT_BITS))), ADD(bias, rest));
        }
    }
    EACH for (int v = 0; v < lanes / WIDTH; v++) STORE(states + v * WIDTH, lane[v]);
    return words;
}

INLINE int64_t decode_vectors(const uint8_t *words, int64_t *place, const uint64_t *slots, uint32_t *states,
                              void *symbols, int32_t bytes, int64_t rounds, int32_t lanes) {
    vector lane[AQ_LANES / WIDTH];
    EACH for (int v = 0; v < lanes / WIDTH; v++) lane[v] = LOAD(states + v * WIDTH);
    uint8_t *here = symbols;
    int64_t p = *place, done = 0;
    for (; done < rounds && p >= lanes; done++, here += lanes * bytes) {
        EACH for (int v = lanes / WIDTH - 1; v >= 0; v--) {
            vector x = lane[v], share, interval;
            look_up(slots, AND(x, ALL(AQ_SLOTS - 1)), &share, &interval);
            vector width = AND(interval, ALL(7)), rest = RIGHT(x, AQ_SLOT_BITS), quotient = RIGHT_BY(rest, width);
            vector symbol = ADD(SIGNED_RIGHT(interval, 3), SUB(rest, LEFT_BY(quotient, width)));
            if (bytes == 1) STORE_BYTES(here + v * WIDTH, symbol);
            if (bytes == 2) STORE_HALVES(here + 2 * v * WIDTH, symbol);
            if (bytes == 4) STORE(here + 4 * v * WIDTH, symbol);
            x = ADD(TIMES(AND(share, ALL(65535)), quotient), RIGHT(share, 16));
            mask empty = BELOW(x, ALL(AQ_FLOOR));
            p -= COUNT(empty);
            vector more = EXPAND(empty, LOAD_WORDS(words + 2 * p));
            lane[v] = CHOOSE(empty, OR(LEFT(x, 16), more), x);
        }
    }
    EACH for (int v = 0; v < lanes / WIDTH; v++) STORE(states + v * WIDTH, lane[v]);
    *place = p;
    return done;
}
#else
#define encode_vectors encode_each
#define decode_vectors decode_each
#endif

static uint16_t *encode(const void *symbols, int32_t bytes, int64_t rounds, int32_t lanes, int32_t lowest,
                        const uint64_t *rows, uint32_t *states, uint16_t *words) {
#define AS(way, size, number) \
    if (bytes == size && lanes == number) return way(symbols, size, rounds, number, lowest, rows, states, words)
    AS(encode_vectors, 1, 64);
    AS(encode_vectors, 2, 64);
    AS(encode_vectors, 1, 16);
    AS(encode_vectors, 2, 16);
    AS(encode_each, 1, 4);
    AS(encode_each, 2, 4);
#undef AS
    return words;
}

static int64_t decode(const uint8_t *words, int64_t *place, const uint64_t *slots, uint32_t *states, void *symbols,
                      int32_t bytes, int64_t rounds, int32_t lanes) {
#define AS(way, size, number) \
    if (bytes == size && lanes == number) return way(words, place, slots, states, symbols, size, rounds, number)
    AS(decode_vectors, 1, 64);
    AS(decode_vectors, 2, 64);
    AS(decode_vectors, 4, 64);
    AS(decode_vectors, 1, 16);
    AS(decode_vectors, 2, 16);
    AS(decode_vectors, 4, 16);
    AS(decode_each, 1, 4);
    AS(decode_each, 2, 4);
    AS(decode_each, 4, 4);
#undef AS
    return 0;
}

const aq_dense_kernels AQ_NAME(aq_dense_rounds) = {encode, decode};
