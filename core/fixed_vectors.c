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

/* each: the step of every element; or NULL, where all have the same. */
static void add(const uint8_t *restrict words, int32_t bits, const float *restrict each, float same,
                float *restrict total) {
    uint32_t ones = (1u << (bits - 1)) - 1;
    int32_t up = 32 - bits;
    aq_reals level, sum, step = (aq_reals){0} + same;
#define ADD                                                                                                            \
    level = __builtin_convertvector((aq_ints)(code & ones), aq_reals);                                                 \
    level = (aq_reals)((aq_words)level ^ (code << up & 0x80000000u));                                                  \
    __builtin_prefetch(total + place + 2 * AQ_AHEAD);                                                                  \
    AQ_LOAD(sum, total + place);                                                                                       \
    sum += step * level;                                                                                               \
    AQ_STORE(total + place, sum);
    if (each) FOR_ROWS(AQ_LOAD(step, each + place); ADD)
    else FOR_ROWS(ADD)
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

#define FOR_TYPE(bytes, loop)                                                                                          \
    if (bytes == 1) loop(int8_t)                                                                                       \
    else if (bytes == 2) loop(int16_t)                                                                                 \
    else loop(int32_t)

/* A vector of levels as words: one instruction, of which GCC 12 makes several. */
#if AQ_VECTORS == 2
#define LEVELS_int8_t(from) _mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)(from)))
#define LEVELS_int16_t(from) _mm512_cvtepi16_epi32(_mm256_loadu_si256((const void *)(from)))
#define LEVELS_int32_t(from) _mm512_loadu_si512(from)
#elif AQ_VECTORS == 1
#define LEVELS_int8_t(from) _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(from)))
#define LEVELS_int16_t(from) _mm256_cvtepi16_epi32(_mm_loadu_si128((const void *)(from)))
#define LEVELS_int32_t(from) _mm256_loadu_si256((const void *)(from))
#endif

static void to_codes(const void *restrict values, int32_t bytes, int64_t count, int32_t bits,
                     uint32_t *restrict codes) {
    uint32_t sign = 1u << (bits - 1);
    int64_t i = 0;
#if AQ_VECTORS > 0
#define VECTOR(type)                                                                                                   \
    for (; i + AQ_WIDTH <= count; i += AQ_WIDTH) {                                                                     \
        __builtin_prefetch((const type *)values + i + AQ_AHEAD);                                                       \
        aq_ints value = (aq_ints)LEVELS_##type((const type *)values + i), negative = value >> 31;                      \
        aq_words code = (aq_words)((value ^ negative) - negative) | ((aq_words)negative & sign);                       \
        AQ_STORE(codes + i, code);                                                                                     \
    }
    FOR_TYPE(bytes, VECTOR)
#undef VECTOR
#endif
#define LOOP(type)                                                                                                     \
    for (; i < count; i++) {                                                                                           \
        int32_t value = ((const type *)values)[i];                                                                     \
        codes[i] = value < 0 ? (0u - (uint32_t)value) | sign : (uint32_t)value;                                        \
    }
    FOR_TYPE(bytes, LOOP)
#undef LOOP
}

static void to_levels(const uint32_t *restrict codes, int32_t bits, int64_t count, void *restrict values,
                      int32_t bytes) {
    uint32_t ones = (1u << (bits - 1)) - 1;
#define LOOP(type)                                                                                                     \
    for (int64_t start = 0; start < count; start += AQ_ROW) {                                                          \
        int64_t end = aq_least(start + AQ_ROW, count);                                                                 \
        for (int64_t i = start; i < end; i += 64 / bytes) __builtin_prefetch((type *)values + i + AQ_AHEAD, 1);        \
        for (int64_t i = start; i < end; i++) {                                                                        \
            int32_t level = (int32_t)(codes[i] & ones);                                                                \
            ((type *)values)[i] = (type)(codes[i] > ones ? -level : level);                                            \
        }                                                                                                              \
    }
    FOR_TYPE(bytes, LOOP)
#undef LOOP
}

static void add_levels(const void *restrict values, int32_t bytes, int64_t count, float step, float *restrict total) {
    int64_t i = 0;
#if AQ_VECTORS > 0
#define VECTOR(type)                                                                                                   \
    for (; i + AQ_WIDTH <= count; i += AQ_WIDTH) {                                                                     \
        aq_reals sum;                                                                                                  \
        __builtin_prefetch(total + i + AQ_AHEAD);                                                                      \
        AQ_LOAD(sum, total + i);                                                                                       \
        sum += step * __builtin_convertvector((aq_ints)LEVELS_##type((const type *)values + i), aq_reals);             \
        AQ_STORE(total + i, sum);                                                                                      \
    }
    FOR_TYPE(bytes, VECTOR)
#endif
#define LOOP(type)                                                                                                     \
    for (; i < count; i++) total[i] += step * (float)((const type *)values)[i];
    FOR_TYPE(bytes, LOOP)
#undef LOOP
}

const aq_fixed_kernels AQ_NAME(aq_fixed_kernels) = {pack, unpack, add, above, to_codes, to_levels, add_levels};
