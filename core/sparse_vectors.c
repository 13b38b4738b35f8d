/* The loops of the sparse code: finding non-zeros, adaptive Golomb codes for gaps, Elias gamma for the rest of large
 * levels. The longest code, an escaped gap and its sign, has 53 bits. Nothing here is written for vectors; compilers
 * make some, and use a processor's instructions for bits. */
#include "bits.h"
#include "sparse.h"

#define MEMORY 4 /* the running mean forgets with 1 / 2^4 */
#define LN2 177  /* ln 2 in 256ths: the best divisor is ln 2 x the mean */
#define ROW 64   /* elements that are looked at together */

/* One bit for each of up to 64 elements that is not 0, from bytes of 0 and 1. */
static inline uint64_t gather_bits(const uint8_t *marks) {
    uint64_t bits = 0;
    for (int j = 0; j < ROW / 8; j++) {
        uint64_t eight;
        memcpy(&eight, marks + 8 * j, 8);
        bits |= (eight * 0x0102040810204080u >> 56) << (8 * j);
    }
    return bits;
}

#define FINDERS(type)                                                                                                  \
    static int64_t count_##type(const type *values, int64_t size) {                                                    \
        int64_t count = 0, start = 0;                                                                                  \
        for (; start + 128 <= size; start += 128) { /* so few that a byte holds their number */                        \
            uint8_t some = 0;                                                                                          \
            for (int j = 0; j < 128; j++) some = (uint8_t)(some + (values[start + j] != 0));                           \
            count += some;                                                                                             \
        }                                                                                                              \
        for (; start < size; start++) count += values[start] != 0;                                                     \
        return count;                                                                                                  \
    }                                                                                                                  \
    static void list_##type(const type *values, int64_t first, int64_t last, uint32_t *index, int32_t *level) {        \
        int64_t found = 0;                                                                                             \
        for (int64_t start = first; start < last; start += ROW) {                                                      \
            const type *row = values + start;                                                                          \
            uint8_t marks[ROW] = {0};                                                                                  \
            if (start + ROW <= last)                                                                                   \
                for (int j = 0; j < ROW; j++) marks[j] = row[j] != 0;                                                  \
            else                                                                                                       \
                for (int j = 0; j < last - start; j++) marks[j] = row[j] != 0;                                         \
            for (uint64_t bits = gather_bits(marks); bits; bits &= bits - 1, found++) {                                \
                int j = __builtin_ctzll(bits);                                                                         \
                index[found] = (uint32_t)(start + j);                                                                  \
                level[found] = row[j];                                                                                 \
            }                                                                                                          \
        }                                                                                                              \
    }
FINDERS(int8_t)
FINDERS(int16_t)
FINDERS(int32_t)

static int64_t count(const void *values, int32_t bytes, int64_t size) {
    if (bytes == 1) return count_int8_t(values, size);
    return bytes == 2 ? count_int16_t(values, size) : count_int32_t(values, size);
}

static void list(const void *values, int32_t bytes, int64_t first, int64_t last, uint32_t *index, int32_t *level) {
    if (bytes == 1) list_int8_t(values, first, last, index, level);
    if (bytes == 2) list_int16_t(values, first, last, index, level);
    if (bytes == 4) list_int32_t(values, first, last, index, level);
}

/* -- codes */

/* Bits that hold any gap among this many elements. */
static inline int64_t width_of(int64_t things) { return aq_floor_log2((uint64_t)(2 * things - 1)); }

/* The running mean before the first gap: (mean gap + 1/2) x 16, from the counts that both sides know. */
static inline int64_t start_of(int64_t things, int64_t marked) {
    return (((things - marked) << MEMORY) + (marked << (MEMORY - 1))) / marked;
}

static inline int64_t divisor_of(int64_t mean) {
    int64_t divisor = (LN2 * mean + 2048) >> 12;
    return divisor > 1 ? divisor : 1;
}

static inline int64_t next_mean(int64_t mean, int64_t gap) { return mean + gap - (mean >> MEMORY); }

/* Golomb code: the quotient in ones, a zero, the rest in truncated binary. Returns its length. */
static inline int64_t gap_code(int64_t gap, int64_t mean, int64_t width, uint64_t *code) {
    int64_t divisor = divisor_of(mean);
    int64_t quotient = (int64_t)((uint32_t)gap / (uint32_t)divisor);
    if (quotient >= AQ_LONGEST_GAP) {
        *code = aq_ones(AQ_LONGEST_GAP) | (uint64_t)(gap - AQ_LONGEST_GAP * divisor) << AQ_LONGEST_GAP;
        return AQ_LONGEST_GAP + width;
    }
    int64_t bits = width_of(divisor), rest = gap - quotient * divisor;
    int64_t few = ((int64_t)1 << bits) - divisor; /* this many remainders take one bit less */
    int64_t longer = rest >= few;                 /* no branch: it could not be predicted */
    int64_t both = rest + few * longer, high = bits > 0 ? bits - 1 : 0;
    *code = aq_ones(quotient) | (uint64_t)(both >> longer | (both & longer) << high) << (quotient + 1);
    return quotient + bits + longer;
}

/* Elias gamma of a number from 1 on: as many ones as bits follow the top one, a zero, those bits. */
static inline void put_gamma(aq_bits *w, uint64_t number) {
    int64_t bits = aq_floor_log2(number);
    aq_put(w, aq_ones(bits), bits + 1);
    aq_put(w, number & aq_ones(bits), bits);
}

static inline int64_t magnitude(int32_t level) { return level < 0 ? -(int64_t)level : level; }

/* The gaps between the places of `marked` of `things` elements. */
static void put_gaps(aq_bits *given, const uint32_t *places, int64_t marked, int64_t things) {
    aq_bits w = *given; /* of its own, which the bytes that it writes cannot change */
    int64_t mean = start_of(things, marked), width = width_of(things), expected = 0;
    for (int64_t k = 0; k < marked; k++) {
        uint64_t code;
        int64_t gap = (int64_t)places[k] - expected, length = gap_code(gap, mean, width, &code);
        aq_put(&w, code, length);
        mean = next_mean(mean, gap);
        expected = (int64_t)places[k] + 1;
    }
    *given = w;
}

static uint8_t *write(const uint32_t *index, const int32_t *level, int64_t count, int64_t start, int64_t size,
                      uint32_t *places, uint8_t *out) {
    aq_bits w = {out, 0, 0};
    int64_t mean = start_of(size, count), width = width_of(size), expected = start, reach2 = 0, reach3 = 0;
    uint32_t *again = places + count;
    for (int64_t k = 0; k < count; k++) {
        uint64_t code;
        int64_t gap = (int64_t)index[k] - expected, length = gap_code(gap, mean, width, &code);
        aq_put(&w, code | (uint64_t)(level[k] < 0) << length, length + 1);
        mean = next_mean(mean, gap);
        expected = (int64_t)index[k] + 1;
        places[reach2] = (uint32_t)k;
        reach2 += magnitude(level[k]) > 1;
    }
    put_gamma(&w, (uint64_t)reach2 + 1);
    if (reach2) {
        put_gaps(&w, places, reach2, count);
        for (int64_t k = 0; k < reach2; k++) {
            again[reach3] = (uint32_t)k;
            reach3 += magnitude(level[places[k]]) > 2;
        }
        put_gamma(&w, (uint64_t)reach3 + 1);
        if (reach3) put_gaps(&w, again, reach3, reach2);
        for (int64_t k = 0; k < reach3; k++) put_gamma(&w, (uint64_t)magnitude(level[places[again[k]]]) - 2);
    }
    return w.out + (w.filled > 0);
}

/* Undo `gap_code` at the low end of `view`; returns the gap. */
static inline int64_t read_gap(uint64_t view, int64_t mean, int64_t width, int64_t *length) {
    int64_t divisor = divisor_of(mean), quotient = __builtin_ctzll(~view | (uint64_t)1 << AQ_LONGEST_GAP);
    if (quotient == AQ_LONGEST_GAP) {
        *length = AQ_LONGEST_GAP + width;
        return AQ_LONGEST_GAP * divisor + (int64_t)(view >> AQ_LONGEST_GAP & aq_ones(width));
    }
    int64_t bits = width_of(divisor), high = bits > 0 ? bits - 1 : 0;
    view >>= quotient + 1;
    int64_t rest = (int64_t)(view & aq_ones(high)), few = ((int64_t)1 << bits) - divisor;
    int64_t shorter = (rest - few) >> 63, more = (int64_t)(view >> high & (uint64_t)(bits > 0)) - few;
    rest += (rest + more) & ~shorter; /* no branch: it could not be predicted */
    *length = quotient + bits + 1 + shorter;
    return quotient * divisor + rest;
}

/* Returns the number, or most + 1 where it is larger; moves *position behind it. */
static inline int64_t read_gamma(const uint8_t *body, uint64_t size, uint64_t *position, int64_t most) {
    int64_t bits = __builtin_ctzll(~aq_look(body, size, *position) | (uint64_t)1 << 33);
    *position += (uint64_t)bits + 1;
    int64_t number = (int64_t)((aq_look(body, size, *position) & aq_ones(bits)) + ((uint64_t)1 << bits));
    *position += (uint64_t)bits;
    return number <= most ? number : most + 1;
}

static int32_t read(const uint8_t *body, uint64_t size, uint64_t position, uint64_t end, int64_t start, int64_t things,
                    int64_t top, int64_t marked, uint32_t *index, int32_t *level, uint32_t *places) {
    for (int64_t reach = 1; reach < 4; reach++) {
        if (reach > 1) {
            if (position >= end) return AQ_RUNS_OUT;
            marked = read_gamma(body, size, &position, things + 1) - 1;
        }
        if (marked > things) return AQ_TOO_MANY;
        if (marked > 0 && top < reach) return AQ_ABOVE_S;
        int64_t mean = start_of(things, marked ? marked : 1), width = width_of(things), expected = 0, length;
        if (reach == 1)
            for (int64_t k = 0; k < marked; k++) {
                if (position >= end) return AQ_RUNS_OUT;
                uint64_t view = aq_look(body, size, position);
                int64_t gap = read_gap(view, mean, width, &length);
                if (gap >= things - expected) return AQ_BEYOND_CHUNK;
                index[k] = (uint32_t)(start + expected + gap);
                level[k] = 1 - 2 * (int32_t)(view >> length & 1);
                position += (uint64_t)length + 1;
                expected += gap + 1;
                mean = next_mean(mean, gap);
            }
        else
            for (int64_t k = 0; k < marked; k++) {
                if (position >= end) return AQ_RUNS_OUT;
                int64_t gap = read_gap(aq_look(body, size, position), mean, width, &length);
                if (gap >= things - expected) return AQ_BEYOND_CHUNK;
                int64_t at = expected + gap;
                uint32_t i = reach == 2 ? (uint32_t)at : places[at]; /* at >= k: not yet overwritten */
                places[k] = i;
                level[i] += level[i] > 0 ? 1 : -1;
                position += (uint64_t)length;
                expected = at + 1;
                mean = next_mean(mean, gap);
            }
        things = marked;
        if (marked == 0) break;
    }
    for (int64_t k = 0; k < things; k++) {
        if (position >= end) return AQ_RUNS_OUT;
        int64_t number = read_gamma(body, size, &position, top - 2);
        if (number > top - 2) return AQ_ABOVE_S;
        int32_t more = (int32_t)(number - 1);
        level[places[k]] += level[places[k]] > 0 ? more : -more;
    }
    /* The chunk ends in the byte of its last code, whose unused bits are 0. */
    if (position > end) return AQ_RUNS_OUT;
    if (position + 8 <= end) return AQ_TRAILING;
    return aq_look(body, size, position) & aq_ones((int64_t)(end - position)) ? AQ_CHUNK_PADDING : 0;
}

const aq_sparse_kernels AQ_NAME(aq_sparse_codes) = {count, list, write, read};
