/* A block of 1024 codes to words and back: 32 lanes of 32 rows. Row r of lane c is element 32 r + c. Each lane packs its
 * codes, lowest bits first, into as many words of 32 bits as a code has bits; word w of all lanes lies side by side. */
#include "vectors.h"

#define LANES 32

static void pack(const uint32_t *codes, int32_t bits, uint8_t *words) {
    for (int lane = 0; lane < LANES; lane += 2 * AQ_WIDTH) {
        aq_words pending = {0}, pending_2 = {0}, part, part_2;
        int32_t filled = 0; /* bits of the present words that are taken */
        uint8_t *to = words + 4 * lane;
        for (int row = 0; row < LANES; row++) {
            AQ_LOAD(part, codes + LANES * row + lane);
            AQ_LOAD(part_2, codes + LANES * row + lane + AQ_WIDTH);
            pending |= part << filled;
            pending_2 |= part_2 << filled;
            filled += bits;
            if (filled >= 32) {
                AQ_STORE(to, pending);
                AQ_STORE(to + 4 * AQ_WIDTH, pending_2);
                to += 4 * LANES;
                filled -= 32; /* the codes' upper bits go to the next words */
                pending = part >> (bits - filled);
                pending_2 = part_2 >> (bits - filled);
            }
        }
    }
}

/* The codes of a vector of lanes in a row, in the low bits, and anything above. */
static inline aq_words row_at(const uint8_t *words, int32_t bits, int32_t row, int32_t lane) {
    int32_t bit = row * bits, shift = bit & 31;
    const uint8_t *from = words + 4 * LANES * (bit >> 5) + 4 * lane;
    aq_words code, following;
    AQ_LOAD(code, from);
    code >>= shift;
    if (shift + bits > 32) {
        AQ_LOAD(following, from + 4 * LANES);
        code |= following << (32 - shift);
    }
    return code;
}

static void unpack(const uint8_t *words, int32_t bits, uint32_t *codes) {
    for (int row = 0; row < LANES; row++)
        for (int lane = 0; lane < LANES; lane += AQ_WIDTH) {
            aq_words code = row_at(words, bits, row, lane) & ((1u << bits) - 1);
            AQ_STORE(codes + LANES * row + lane, code);
        }
}

static void add(const uint8_t *words, int32_t bits, const float *each, float *total) {
    uint32_t ones = (1u << (bits - 1)) - 1;
    int32_t up = 32 - bits;
    for (int row = 0; row < LANES; row++) {
        __builtin_prefetch(total + LANES * row + AQ_AHEAD, 1);
        __builtin_prefetch(total + LANES * row + AQ_AHEAD + 16, 1);
        for (int lane = 0; lane < LANES; lane += AQ_WIDTH) {
            aq_words code = row_at(words, bits, row, lane);
            aq_reals level = __builtin_convertvector((aq_ints)(code & ones), aq_reals), step, sum;
            level = (aq_reals)((aq_words)level ^ (code << up & 0x80000000u));
            AQ_LOAD(step, each + LANES * row + lane);
            AQ_LOAD(sum, total + LANES * row + lane);
            sum += step * level;
            AQ_STORE(total + LANES * row + lane, sum);
        }
    }
}

static uint32_t largest(const uint8_t *words, int32_t bits) {
    uint32_t ones = (1u << (bits - 1)) - 1, top = 0;
    aq_ints tops = {0};
    for (int row = 0; row < LANES; row++)
        for (int lane = 0; lane < LANES; lane += AQ_WIDTH) {
            aq_ints level = (aq_ints)(row_at(words, bits, row, lane) & ones), above = level > tops;
            tops = (level & above) | (tops & ~above);
        }
    for (int lane = 0; lane < AQ_WIDTH; lane++) top = (uint32_t)tops[lane] > top ? (uint32_t)tops[lane] : top;
    return top;
}

#define FOR_TYPE(bytes, loop)                                                                                          \
    if (bytes == 1) loop(int8_t)                                                                                       \
    else if (bytes == 2) loop(int16_t)                                                                                 \
    else loop(int32_t)

static void to_codes(const void *restrict values, int32_t bytes, int64_t count, int32_t bits,
                     uint32_t *restrict codes) {
    uint32_t sign = 1u << (bits - 1);
#define LOOP(type)                                                                                                     \
    for (int64_t i = 0; i < count; i++) {                                                                              \
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
    for (int64_t i = 0; i < count; i++) {                                                                              \
        int32_t level = (int32_t)(codes[i] & ones);                                                                    \
        ((type *)values)[i] = (type)(codes[i] > ones ? -level : level);                                                \
    }
    FOR_TYPE(bytes, LOOP)
#undef LOOP
}

static void add_levels(const void *restrict values, int32_t bytes, int64_t count, float step, float *restrict total) {
#define LOOP(type)                                                                                                     \
    for (int64_t i = 0; i < count; i++) total[i] += step * (float)((const type *)values)[i];
    FOR_TYPE(bytes, LOOP)
#undef LOOP
}

const aq_fixed_kernels AQ_NAME(aq_fixed_kernels) = {pack, unpack, add, largest, to_codes, to_levels, add_levels};
