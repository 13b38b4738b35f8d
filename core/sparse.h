/* What the choice of a codec needs to know of the sparse code. */
#ifndef AQ_SPARSE_H
#define AQ_SPARSE_H

#include "inside.h"

#define AQ_LEAST_SHIFT 16 /* log2 of AQ_TILE */

/* log2 of the elements in a chunk: as few as give a chunk enough non-zeros on average. */
int32_t aq_chunk_shift(int64_t nonzeros, int64_t dimension);

#endif
