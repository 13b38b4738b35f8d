/* What the choice of a codec needs to know of the sparse code. */
#ifndef AQ_SPARSE_H
#define AQ_SPARSE_H

#include "vectors.h"

#define AQ_LEAST_SHIFT 16 /* log2 of AQ_TILE */
#define AQ_LONGEST_GAP 20 /* ones before a gap is written out instead */

/* log2 of the elements in a chunk: as few as give a chunk enough non-zeros on average. */
int32_t aq_chunk_shift(int64_t nonzeros, int64_t dimension);
/* How many of the values first to last are not 0. */
int64_t aq_count_nonzeros(const void *values, int32_t bytes, int64_t first, int64_t last);
/* Bytes of memory that listing and writing takes for an element that is not 0, at most. */
#define AQ_BYTES_LISTED 48

/* -- sparse_vectors.c */
typedef struct {
    int64_t (*count)(const void *values, int32_t bytes, int64_t size); /* of those that are not 0 */
    void (*list)(const void *values, int32_t bytes, int64_t first, int64_t last, uint32_t *index, int32_t *level);
    /* Write the non-zero elements of one chunk of `size`, from element `start` on; returns the place behind the bytes.
     * places: scratch for two numbers for each element. */
    uint8_t *(*write)(const uint32_t *index, const int32_t *level, int64_t count, int64_t start, int64_t size,
                      uint32_t *places, uint8_t *out);
    /* The way back, from the bits position to end of a body with `size` bytes. things, marked: the chunk's elements and
     * those that are not 0. Returns what is wrong (enum aq_chunk). Whatever the bits are, no code is looked at from
     * beyond the end. places: scratch for a number for each element. */
    int32_t (*read)(const uint8_t *body, uint64_t size, uint64_t position, uint64_t end, int64_t start, int64_t things,
                    int64_t top, int64_t marked, uint32_t *index, int32_t *level, uint32_t *places);
} aq_sparse_kernels;
AQ_DECLARE(aq_sparse_kernels, aq_sparse_codes);

#endif
