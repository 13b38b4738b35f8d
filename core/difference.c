/* Lossless differences: floats as integers in the order of their values, and the distances between. The integer of a
 * float that is not negative is its bit pattern; below, the order of the patterns is turned around. Every pattern has
 * its own, -0.0 and NaN included, and neighbouring floats are 1 apart. */
#include "inside.h"

#define ROW 64 /* elements that are passed over together */

/* From a pattern, read as a signed integer, to its place in the order, and back: the same function. No branch: signs
 * are hard to predict. top: the largest positive pattern. */
static inline int64_t turned(int64_t pattern, int64_t top) { return pattern ^ (-(int64_t)(pattern < 0) & top); }

static inline int64_t pattern_at(const void *patterns, int32_t bytes, int64_t i) {
    return bytes == 2 ? (int64_t)((const int16_t *)patterns)[i] : (int64_t)((const int32_t *)patterns)[i];
}

static inline int64_t largest_positive(int32_t bytes) { return ((int64_t)1 << (8 * bytes - 1)) - 1; }

/* A bit for each element of a row that differs. */
#define DIFFERENT(type)                                                                                                \
    static inline uint64_t different_##type(const type *a, const type *b, int64_t size) {                              \
        uint8_t flags[ROW] = {0};                                                                                      \
        uint64_t mask = 0, eight;                                                                                      \
        if (size == ROW)                                                                                               \
            for (int64_t j = 0; j < ROW; j++) flags[j] = a[j] != b[j];                                                 \
        else                                                                                                           \
            for (int64_t j = 0; j < size; j++) flags[j] = a[j] != b[j];                                                \
        for (int32_t j = 0; j < ROW; j += 8) { /* the lowest bits of eight bytes, side by side */                      \
            memcpy(&eight, flags + j, 8);                                                                              \
            mask |= eight * 0x0102040810204080u >> 56 << j;                                                            \
        }                                                                                                              \
        return mask;                                                                                                   \
    }
DIFFERENT(uint16_t)
DIFFERENT(uint32_t)

/* Compiled for each number of bytes. */
static inline int64_t differ(const void *old, const void *new_, int32_t bytes, int64_t count, uint32_t *index,
                             int64_t *distance) {
    int64_t found = 0, top = largest_positive(bytes);
    for (int64_t start = 0; start < count; start += ROW) {
        int64_t size = aq_least(ROW, count - start);
        const void *a = (const char *)old + start * bytes, *b = (const char *)new_ + start * bytes;
        uint64_t mask = bytes == 2 ? different_uint16_t(a, b, size) : different_uint32_t(a, b, size);
        for (; mask; mask &= mask - 1, found++) {
            int64_t i = start + __builtin_ctzll(mask);
            index[found] = (uint32_t)i;
            distance[found] = turned(pattern_at(new_, bytes, i), top) - turned(pattern_at(old, bytes, i), top);
        }
    }
    return found;
}

AQ_API int64_t aq_differ(const void *old, const void *new_, int32_t bytes, int64_t count, uint32_t *index,
                         int64_t *distance) {
    return bytes == 2 ? differ(old, new_, 2, count, index, distance) : differ(old, new_, 4, count, index, distance);
}

/* Returns how many were moved: fewer than all where one would leave the range. */
static inline int64_t move(void *patterns, int32_t bytes, const int64_t *index, const int64_t *distance, int64_t count,
                    int64_t sign, uint64_t *sum) {
    int64_t top = largest_positive(bytes);
    uint64_t total = 0;
    for (int64_t i = 0; i < count; i++) {
        uint64_t step = (uint64_t)sign * (uint64_t)distance[i];
        int64_t ordered = (int64_t)((uint64_t)turned(pattern_at(patterns, bytes, index[i]), top) + step);
        if (ordered > top || ordered < -top - 1) return i;
        uint32_t pattern = (uint32_t)turned(ordered, top);
        if (bytes == 2) total += ((uint16_t *)patterns)[index[i]] = (uint16_t)pattern;
        else total += ((uint32_t *)patterns)[index[i]] = pattern;
    }
    *sum = total;
    return count;
}

AQ_API int32_t aq_move(void *patterns, int32_t bytes, const int64_t *index, const int64_t *distance, int64_t count,
                       int32_t sign, uint64_t *sum) {
    int64_t moved = bytes == 2 ? move(patterns, 2, index, distance, count, sign, sum)
                               : move(patterns, 4, index, distance, count, sign, sum);
    if (moved == count) return AQ_FINE;
    move(patterns, bytes, index, distance, moved, -sign, sum);
    return AQ_MOVED;
}
