/* Between header.c and frame.c. */
#ifndef AQ_HEADER_H
#define AQ_HEADER_H

#include "inside.h"

#define AQ_CHECKSUM_SIZE 4

/* Bytes of a header that says everything, which a short one never exceeds. */
uint64_t aq_header_size(const aq_plan *plan);
/* Write the header in front of the body at plan->out + head, and the checksum behind it; returns the frame's size. Where
 * the header is short, the body moves up to it. */
int64_t aq_finish(const aq_plan *plan, int32_t codec, uint64_t head, uint64_t body_size);

#endif
