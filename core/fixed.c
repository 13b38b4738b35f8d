/* The paper's code: ceil(log2(s + 1)) bits for a level and one for its sign, for every element. Blocks have 1024
 * elements: see fixed_vectors.c. Those behind the last whole block are packed one after the other, lowest bits
 * first. */
#include "vectors.h"

#define SMALLEST 64 /* blocks that a thread takes at least */

static void write_tail(const uint32_t *codes, int64_t count, int32_t bits, uint8_t *tail) {
    uint64_t pending = 0;
    int32_t filled = 0;
    for (int64_t i = 0; i < count; i++) {
        pending |= (uint64_t)codes[i] << filled;
        filled += bits;
        if (filled < 32) continue;
        memcpy(tail, &pending, 4);
        tail += 4, filled -= 32, pending >>= 32;
    }
    for (; filled > 0; filled -= 8, pending >>= 8) *tail++ = (uint8_t)pending;
}

static void read_tail(const uint8_t *tail, int64_t count, int32_t bits, uint32_t *codes) {
    int64_t i = 0, bit = 0, size = (count * bits + 7) / 8;
    uint64_t mask = (1u << bits) - 1, word;
    for (; bit / 8 + 8 <= size; i++, bit += bits) {
        memcpy(&word, tail + bit / 8, 8);
        codes[i] = (uint32_t)(word >> (bit & 7) & mask);
    }
    uint8_t last[16] = {0}; /* the bytes that are left, fewer than 8, and zeros behind them */
    int64_t at = bit / 8;
    memcpy(last, tail + at, (size_t)(size - at));
    for (; i < count; i++, bit += bits) {
        memcpy(&word, last + (bit / 8 - at), 8);
        codes[i] = (uint32_t)(word >> (bit & 7) & mask);
    }
}

static int64_t blocks_of(int64_t dimension) { return (dimension + AQ_BLOCK - 1) / AQ_BLOCK; }

/* What differs between segments is kept for each element of a block: then one loop does for any segments. */
typedef struct {
    const int64_t *offsets;
    int64_t segments, dimension, segment, until; /* until: how far the numbers of this block are right */
    int32_t same;                                /* one segment holds the whole block */
} spreading;

static void spread_words(const float *numbers, const double *wide, int64_t segment, int64_t from, int64_t to,
                         float *each, double *wide_each) {
    if (numbers)
        for (int64_t j = from; j < to; j++) each[j] = numbers[segment];
    if (wide)
        for (int64_t j = from; j < to; j++) wide_each[j] = wide[segment];
}

/* each[j] = the number of the segment of element j of the block; from the last block they may be there already. */
static void spread(spreading *at, int64_t block, const float *numbers, const double *wide, float *each,
                   double *wide_each) {
    int64_t start = block * AQ_BLOCK, end = aq_least(start + AQ_BLOCK, at->dimension), position = start;
    if (at->until >= end) return;
    if (at->until < 0) at->segment = aq_segment_at(at->offsets, at->segments, start);
    while (position < end) {
        while (at->offsets[at->segment + 1] <= position) at->segment++;
        int64_t stop = aq_least(at->offsets[at->segment + 1], end);
        /* A segment that goes on beyond this block fills all of it, for the next ones. */
        int64_t to = position == start && stop == end ? AQ_BLOCK : stop - start;
        spread_words(numbers, wide, at->segment, position - start, to, each, wide_each);
        position = stop;
    }
    at->same = at->offsets[at->segment] <= start;
    at->until = at->same ? at->offsets[at->segment + 1] : end;
}

typedef struct {
    const void *values;
    void *out;
    const uint8_t *body;
    uint8_t *target;
    const aq_floats *floats;
    const int64_t *offsets;
    const float *steps;
    float *total;
    int64_t segments, dimension, top;
    int32_t bytes, bits;
    uint32_t largest;
} job;

static uint64_t place_of(const job *work, int64_t block) {
    return (uint64_t)block * (AQ_BLOCK / 8) * (uint64_t)work->bits;
}

static void write_blocks(void *context, int64_t first, int64_t last) {
    const job *work = context;
    const aq_fixed_kernels *kernels = AQ_PICK(aq_fixed_kernels);
    AQ_ALIGNED uint32_t codes[AQ_BLOCK];
    for (int64_t block = first; block < last; block++) {
        int64_t count = aq_least(AQ_BLOCK, work->dimension - block * AQ_BLOCK);
        const char *values = (const char *)work->values + block * AQ_BLOCK * work->bytes;
        kernels->to_codes(values, work->bytes, count, work->bits, codes);
        if (count == AQ_BLOCK) kernels->pack(codes, work->bits, work->target + place_of(work, block));
        else write_tail(codes, count, work->bits, work->target + place_of(work, block));
    }
}

void aq_fixed_write(const void *values, int32_t bytes, int64_t dimension, int64_t top, uint8_t *body, aq_each each) {
    job work = {.values = values, .bytes = bytes, .dimension = dimension, .bits = aq_code_bits(top), .target = body};
    aq_run(each, write_blocks, &work, blocks_of(dimension), SMALLEST);
}

static void compress_blocks(void *context, int64_t first, int64_t last) {
    const job *work = context;
    const aq_floats *floats = work->floats;
    const aq_fixed_kernels *kernels = AQ_PICK(aq_fixed_kernels);
    const aq_quantize_kernels *quantize = AQ_PICK(aq_quantize_kernels);
    AQ_ALIGNED uint32_t codes[AQ_BLOCK];
    AQ_ALIGNED float inverse[AQ_BLOCK], lift[AQ_BLOCK], rest[AQ_BLOCK];
    AQ_ALIGNED double wide[AQ_BLOCK];
    spreading at = {floats->offsets, floats->segments, floats->dimension, 0, -1, 0}, lifted = at;
    for (int64_t block = first; block < last; block++) {
        const float *x = floats->x + block * AQ_BLOCK;
        int64_t count = aq_least(AQ_BLOCK, floats->dimension - block * AQ_BLOCK);
        aq_stream stream = {0, (float)floats->s, 0, floats->s, (uint32_t)(block * AQ_BLOCK) * AQ_WEYL + floats->low,
                            floats->high};
        spread(&at, block, floats->inverse, floats->wide, inverse, wide);
        if (floats->lift) {
            spread(&lifted, block, floats->lift, NULL, lift, NULL);
            for (int64_t j = 0; j < count; j++) rest[j] = x[j] * lift[j];
            x = rest;
        }
        uint8_t *target = work->target + place_of(work, block);
        if (count < AQ_BLOCK) {
            if (x != rest) memcpy(rest, x, 4 * (size_t)count);
            int64_t padded = (count + AQ_ROW - 1) / AQ_ROW * AQ_ROW;
            for (int64_t j = count; j < padded; j++) rest[j] = inverse[j] = 0, wide[j] = 0;
            quantize->codes(rest, padded, inverse, wide, &stream, work->bits, codes);
            write_tail(codes, count, work->bits, target);
        } else {
            quantize->codes(x, AQ_BLOCK, inverse, wide, &stream, work->bits, codes);
            kernels->pack(codes, work->bits, target);
        }
    }
}

void aq_fixed_compress(const aq_floats *floats, uint8_t *body, aq_each each) {
    job work = {.floats = floats, .bits = aq_code_bits(floats->s), .target = body};
    aq_run(each, compress_blocks, &work, blocks_of(floats->dimension), SMALLEST);
}

static uint32_t largest_of(const uint32_t *codes, int64_t count, int32_t bits) {
    uint32_t ones = (1u << (bits - 1)) - 1, top = 0;
    for (int64_t i = 0; i < count; i++) top = (codes[i] & ones) > top ? codes[i] & ones : top;
    return top;
}

static void check_blocks(void *context, int64_t first, int64_t last) {
    job *work = context;
    const aq_fixed_kernels *kernels = AQ_PICK(aq_fixed_kernels);
    for (int64_t block = first; block < last; block++) {
        const uint8_t *body = work->body + place_of(work, block);
        if (!kernels->above(body, work->bits, (int32_t)work->top)) continue;
        uint32_t codes[AQ_BLOCK], before = __atomic_load_n(&work->largest, __ATOMIC_RELAXED);
        kernels->unpack(body, work->bits, codes);
        uint32_t here = largest_of(codes, AQ_BLOCK, work->bits);
        while (here > before && !__atomic_compare_exchange_n(&work->largest, &before, here, 1, __ATOMIC_RELAXED,
                                                             __ATOMIC_RELAXED)) {
        }
    }
}

int32_t aq_fixed_check(const uint8_t *body, uint64_t size, int64_t dimension, int64_t top, uint32_t s, aq_each each,
                       aq_error *error) {
    job work = {.body = body, .bits = aq_code_bits(top), .top = top};
    int64_t whole = dimension / AQ_BLOCK, rest = dimension % AQ_BLOCK;
    if (size != aq_fixed_size(dimension, top))
        return aq_fail(error, AQ_FIXED_SIZE, (int64_t)size, dimension, s, (int64_t)aq_fixed_size(dimension, top));
    int32_t used = (int32_t)(rest * work.bits % 8);
    if (used && body[size - 1] >> used) return aq_fail(error, AQ_FIXED_BITS, 0, 0, 0, 0);
    if (top + 1 == (int64_t)1 << (work.bits - 1)) return AQ_FINE; /* every code is a level */
    if (rest) {
        AQ_ALIGNED uint32_t codes[AQ_BLOCK];
        read_tail(body + place_of(&work, whole), rest, work.bits, codes);
        work.largest = largest_of(codes, rest, work.bits);
    }
    aq_run(each, check_blocks, &work, whole, SMALLEST);
    return work.largest > top ? aq_fail(error, AQ_FIXED_LEVEL, work.largest, s, 0, 0) : AQ_FINE;
}

static void read_blocks(void *context, int64_t first, int64_t last) {
    const job *work = context;
    const aq_fixed_kernels *kernels = AQ_PICK(aq_fixed_kernels);
    AQ_ALIGNED uint32_t codes[AQ_BLOCK];
    for (int64_t block = first; block < last; block++) {
        int64_t count = aq_least(AQ_BLOCK, work->dimension - block * AQ_BLOCK);
        const uint8_t *body = work->body + place_of(work, block);
        if (count == AQ_BLOCK) kernels->unpack(body, work->bits, codes);
        else read_tail(body, count, work->bits, codes);
        kernels->to_levels(codes, work->bits, count, (char *)work->out + block * AQ_BLOCK * work->bytes, work->bytes);
    }
}

void aq_fixed_read(const uint8_t *body, int64_t dimension, int64_t top, void *values, int32_t bytes, aq_each each) {
    job work = {.body = body, .out = values, .bytes = bytes, .dimension = dimension, .bits = aq_code_bits(top)};
    aq_run(each, read_blocks, &work, blocks_of(dimension), SMALLEST);
}

static void add_blocks(void *context, int64_t first, int64_t last) {
    const job *work = context;
    const aq_fixed_kernels *kernels = AQ_PICK(aq_fixed_kernels);
    spreading at = {work->offsets, work->segments, work->dimension, 0, -1, 0};
    AQ_ALIGNED float each[AQ_BLOCK];
    for (int64_t block = first; block < last; block++) {
        int64_t count = aq_least(AQ_BLOCK, work->dimension - block * AQ_BLOCK);
        const uint8_t *body = work->body + place_of(work, block);
        float *total = work->total + block * AQ_BLOCK;
        spread(&at, block, work->steps, NULL, each, NULL);
        if (count == AQ_BLOCK) {
            kernels->add(body, work->bits, at.same ? NULL : each, *each, total);
        } else {
            AQ_ALIGNED uint32_t codes[AQ_BLOCK];
            int32_t levels[AQ_BLOCK];
            read_tail(body, count, work->bits, codes);
            kernels->to_levels(codes, work->bits, count, levels, 4);
            for (int64_t j = 0; j < count; j++) total[j] += each[j] * (float)levels[j];
        }
    }
}

void aq_fixed_add(const uint8_t *body, int64_t dimension, int64_t top, const int64_t *offsets, int64_t segments,
                  const float *steps, float *total, aq_each each) {
    job work = {.body = body, .dimension = dimension, .bits = aq_code_bits(top), .offsets = offsets,
                .segments = segments, .steps = steps, .total = total};
    aq_run(each, add_blocks, &work, blocks_of(dimension), SMALLEST);
}
