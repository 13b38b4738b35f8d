/* What the choice of a codec needs to know of the sparse code. */
#ifndef AQ_SPARSE_H
#define AQ_SPARSE_H

#include "inside.h"

#define AQ_LEAST_SHIFT 16 /* log2 of AQ_TILE */

/* log2 of the elements in a chunk: as few as give a chunk enough non-zeros on average. */
int32_t aq_chunk_shift(int64_t nonzeros, int64_t dimension);
/* How many of the values first to last are not 0. */
int64_t aq_count_nonzeros(const void *values, int32_t bytes, int64_t first, int64_t last);
/* Bytes of memory that listing and writing takes for an element that is not 0, at most. */
#define AQ_BYTES_LISTED 48

#endif
