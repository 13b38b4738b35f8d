/* The paper's code: ceil(log2(s + 1)) bits for a level and one for its sign, for every element. Blocks have 1024
 * elements: see fixed_vectors.c. Those behind the last whole block are packed one after the other, lowest bits
 * first. */
#include "vectors.h"

#define SMALLEST 64 /* blocks that a thread takes at least */

static void write_block(const aq_fixed_kernels *kernels, const uint32_t *codes, int64_t count, int32_t bits,
                        uint8_t *tail) {
    if (count == AQ_BLOCK) {
        kernels->pack(codes, bits, tail);
        return;
    }
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

static void read_block(const aq_fixed_kernels *kernels, const uint8_t *tail, int64_t count, int32_t bits,
                       uint32_t *codes) {
    if (count == AQ_BLOCK) {
        kernels->unpack(tail, bits, codes);
        return;
    }
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

typedef struct {
    const void *values;
    void *out;
    const uint8_t *body;
    uint8_t *target;
    const aq_floats *floats;
    const aq_sum *sum;
    int64_t dimension, top;
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
        write_block(kernels, codes, count, work->bits, work->target + place_of(work, block));
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
    float room[AQ_BLOCK];
    int64_t segment = aq_segment_at(floats->offsets, floats->segments, first * AQ_BLOCK);
    for (int64_t block = first; block < last; block++) {
        int64_t begin = block * AQ_BLOCK, count = aq_least(AQ_BLOCK, floats->dimension - begin);
        for (int64_t done = 0, size; done < count; done += size) {
            const float *x;
            aq_stream stream;
            size = aq_next_run(floats, begin + done, begin + count, &segment, room, &x, &stream);
            quantize->codes(x, size, &stream, work->bits, codes + done);
        }
        write_block(kernels, codes, count, work->bits, work->target + place_of(work, block));
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
        uint32_t codes[AQ_BLOCK];
        read_block(NULL, body + place_of(&work, whole), rest, work.bits, codes);
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
        read_block(kernels, body, count, work->bits, codes);
        kernels->to_levels(codes, work->bits, count, (char *)work->out + block * AQ_BLOCK * work->bytes, work->bytes);
    }
}

void aq_fixed_read(const uint8_t *body, int64_t dimension, int64_t top, void *values, int32_t bytes, aq_each each) {
    job work = {.body = body, .out = values, .bytes = bytes, .dimension = dimension, .bits = aq_code_bits(top)};
    aq_run(each, read_blocks, &work, blocks_of(dimension), SMALLEST);
}

static void add_blocks(void *context, int64_t first, int64_t last) {
    const job *work = context;
    const aq_sum *sum = work->sum;
    const aq_fixed_kernels *kernels = AQ_PICK(aq_fixed_kernels);
    AQ_ALIGNED uint32_t codes[AQ_BLOCK];
    int32_t levels[AQ_BLOCK];
    int64_t segment = aq_segment_at(sum->offsets, sum->segments, first * AQ_BLOCK);
    for (int64_t block = first; block < last; block++) {
        int64_t begin = block * AQ_BLOCK, end = aq_least(begin + AQ_BLOCK, work->dimension);
        const uint8_t *body = work->body + place_of(work, block);
        while (sum->offsets[segment + 1] <= begin) segment++;
        if (sum->offsets[segment + 1] >= begin + AQ_BLOCK) { /* one segment holds the whole block */
            kernels->add(body, work->bits, sum->steps[segment], sum->total + begin);
        } else {
            read_block(kernels, body, end - begin, work->bits, codes);
            kernels->to_levels(codes, work->bits, end - begin, levels, 4);
            aq_add_range(sum, levels, 4, begin, end);
        }
    }
}

void aq_fixed_add(const aq_sum *sum, const uint8_t *body, int64_t dimension, int64_t top, aq_each each) {
    job work = {.body = body, .dimension = dimension, .bits = aq_code_bits(top), .sum = sum};
    aq_run(each, add_blocks, &work, blocks_of(dimension), SMALLEST);
}
