/* A block of 1024 codes to words and back: 32 lanes of 32 rows. Row r of lane c is element 32 r + c. Each lane packs
 * its codes, lowest bits first, into as many words of 32 bits as a code has bits; word w of all lanes lies side by
 * side. */
#include "vectors.h"

#define LANES 32

#define VECTORS (LANES / AQ_WIDTH)
#define EACH_VECTOR _Pragma("GCC unroll 8") for (int32_t v = 0; v < VECTORS; v++)

static void pack(const uint32_t *codes, int32_t bits, uint8_t *words) {
    aq_words pending[VECTORS], part[VECTORS]; /* in registers */
    int32_t filled = 0;                       /* bits of the present words that are taken */
    EACH_VECTOR pending[v] = (aq_words){0};
    for (int32_t row = 0; row < LANES; row++, codes += LANES) {
        EACH_VECTOR {
            AQ_LOAD(part[v], codes + v * AQ_WIDTH);
            pending[v] |= part[v] << filled;
        }
        filled += bits;
        if (filled < 32) continue;
        filled -= 32; /* the codes' upper bits go to the next words */
        EACH_VECTOR {
            AQ_STORE(words + 4 * AQ_WIDTH * v, pending[v]);
            pending[v] = part[v] >> (bits - filled);
        }
        words += 4 * LANES;
    }
}

/* What is done with each row of a block: its codes in the low bits of `code`, and anything above, vector by vector. */
#define FOR_ROWS(...)                                                                                                  \
    for (int32_t row = 0, bit = 0; row < LANES; row++, bit += bits) {                                                  \
        const uint8_t *from = words + 4 * LANES * (bit >> 5);                                                          \
        int32_t shift = bit & 31, place = LANES * row;                                                                 \
        aq_words code, following;                                                                                      \
        if (shift + bits > 32)                                                                                         \
            for (int32_t v = 0; v < VECTORS; v++, from += 4 * AQ_WIDTH, place += AQ_WIDTH) {                           \
                AQ_LOAD(code, from);                                                                                   \
                AQ_LOAD(following, from + 4 * LANES);                                                                  \
                code = code >> shift | following << (32 - shift);                                                      \
                __VA_ARGS__                                                                                            \
            }                                                                                                          \
        else                                                                                                           \
            for (int32_t v = 0; v < VECTORS; v++, from += 4 * AQ_WIDTH, place += AQ_WIDTH) {                           \
                AQ_LOAD(code, from);                                                                                   \
                code >>= shift;                                                                                        \
                __VA_ARGS__                                                                                            \
            }                                                                                                          \
    }

static void unpack(const uint8_t *words, int32_t bits, uint32_t *codes) {
    uint32_t ones = (1u << bits) - 1;
    FOR_ROWS({
        code &= ones;
        AQ_STORE(codes + place, code);
    })
}

static void add(const uint8_t *restrict words, int32_t bits, float step, float *restrict total) {
    uint32_t ones = (1u << (bits - 1)) - 1;
    int32_t up = 32 - bits;
    aq_reals level, sum;
    FOR_ROWS({
        level = __builtin_convertvector((aq_ints)(code & ones), aq_reals);
        level = (aq_reals)((aq_words)level ^ (code << up & 0x80000000u));
        __builtin_prefetch(total + place + 2 * AQ_AHEAD);
        AQ_LOAD(sum, total + place);
        sum += step * level;
        AQ_STORE(total + place, sum);
    })
}

static int32_t above(const uint8_t *words, int32_t bits, int32_t top) {
    int32_t ones = (int32_t)((1u << (bits - 1)) - 1);
    aq_ints wrong = {0};
    FOR_ROWS({ wrong |= top - ((aq_ints)code & ones); })
    int32_t lanes[AQ_WIDTH], any = 0;
    AQ_STORE(lanes, wrong);
    for (int32_t lane = 0; lane < AQ_WIDTH; lane++) any |= lanes[lane];
    return any < 0;
}

/* A vector of levels: one instruction, of which GCC 12 makes several. */
AQ_INLINE aq_ints load_levels(int32_t bytes, const void *from) {
#if AQ_VECTORS == 2
    return (aq_ints)(bytes == 1   ? _mm512_cvtepi8_epi32(_mm_loadu_si128(from))
                     : bytes == 2 ? _mm512_cvtepi16_epi32(_mm256_loadu_si256(from))
                                  : _mm512_loadu_si512(from));
#elif AQ_VECTORS == 1
    return (aq_ints)(bytes == 1   ? _mm256_cvtepi8_epi32(_mm_loadl_epi64(from))
                     : bytes == 2 ? _mm256_cvtepi16_epi32(_mm_loadu_si128(from))
                                  : _mm256_loadu_si256(from));
#else
    aq_ints levels;
    for (int32_t lane = 0; lane < AQ_WIDTH; lane++) levels[lane] = aq_level_at(from, bytes, lane);
    return levels;
#endif
}

AQ_INLINE void levels_to_codes(int32_t bytes, const void *values, int64_t count, int32_t bits, uint32_t *codes) {
    uint32_t sign = 1u << (bits - 1);
    int64_t i = 0;
    for (; i + AQ_WIDTH <= count; i += AQ_WIDTH) {
        const char *from = (const char *)values + i * bytes;
        __builtin_prefetch(from + AQ_AHEAD * bytes);
        aq_ints value = load_levels(bytes, from), negative = value >> 31;
        aq_words code = (aq_words)((value ^ negative) - negative) | ((aq_words)negative & sign);
        AQ_STORE(codes + i, code);
    }
    for (; i < count; i++) {
        int32_t value = aq_level_at(values, bytes, i);
        codes[i] = value < 0 ? (0u - (uint32_t)value) | sign : (uint32_t)value;
    }
}

static void to_codes(const void *values, int32_t bytes, int64_t count, int32_t bits, uint32_t *codes) {
    AQ_BY_SIZE(bytes, levels_to_codes, values, count, bits, codes);
}

AQ_INLINE void codes_to_levels(int32_t bytes, const uint32_t *restrict codes, int32_t bits, int64_t count,
                               void *restrict values) {
    uint32_t ones = (1u << (bits - 1)) - 1;
    for (int64_t i = 0; i < count; i++) {
        int32_t level = (int32_t)(codes[i] & ones);
        aq_put_level(values, bytes, i, codes[i] > ones ? -level : level);
    }
}

static void to_levels(const uint32_t *codes, int32_t bits, int64_t count, void *values, int32_t bytes) {
    AQ_BY_SIZE(bytes, codes_to_levels, codes, bits, count, values);
}

AQ_INLINE void add_all(int32_t bytes, const void *values, int64_t count, float step, float *total) {
    int64_t i = 0;
    for (; i + AQ_WIDTH <= count; i += AQ_WIDTH) {
        aq_reals sum;
        __builtin_prefetch(total + i + AQ_AHEAD);
        AQ_LOAD(sum, total + i);
        sum += step * __builtin_convertvector(load_levels(bytes, (const char *)values + i * bytes), aq_reals);
        AQ_STORE(total + i, sum);
    }
    for (; i < count; i++) total[i] += step * (float)aq_level_at(values, bytes, i);
}

static void add_levels(const void *values, int32_t bytes, int64_t count, float step, float *total) {
    AQ_BY_SIZE(bytes, add_all, values, count, step, total);
}

const aq_fixed_kernels AQ_NAME(aq_fixed_kernels) = {pack, unpack, add, above, to_codes, to_levels, add_levels};
