/* What a frame says about its body: everything, or without what its receiver knows. docs/wire-format.md has the bytes. */
#include "header.h"

#include "bits.h"

static const uint8_t MAGIC[4] = {'A', 'Q', 'F', 'L'};
enum { VERSION = 1, FLOAT32 = 255, FIXED_PART = 32, CHECKSUM = 4 };
enum { WHOLE, BUCKETS, LIST };                               /* layouts: how the segments are written */
enum { AS_KNOWN, SMALL_BLOCKS, LARGE_BLOCKS, LISTED, OTHER_KEY }; /* flags of a short header; the first four are ways */
#define LONGEST 65536 /* bytes of a body whose header is short */
#define LARGEST_FLOAT 0x1p127
#define MAX_DIMENSION ((uint64_t)1 << 32)

static const aq_traits TRAITS[] = {
    /* most, linear, divides, keyed, rotates, numbered, least, highest, reach, beyond, clip */
    {65535, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0},              /*  0 uniform, l2: the paper's */
    {65535, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0},              /*  1 uniform, linf */
    {65535, 0, 1, 1, 1, 0, 0, 0, 1, 0, 0},              /*  2 rotated, linf */
    {65535, 0, 1, 1, 1, 0, 0, 0, 1, 0, 0},              /*  3 rotated, l2 */
    {65535, 0, 1, 1, 0, 0, 0, 0, 2, 2, 0},              /*  4 lattice, l2 */
    {65535, 0, 1, 1, 0, 0, 0, 0, 2, 2, 0},              /*  5 lattice, linf */
    {16, 0, 1, 1, 1, 0, 0, 0, 1, 0, 0},                 /*  6 eden */
    {65535, 0, 1, 1, 1, 1, 1.0f, 0x1p20f, 1, 0, 16.0},  /*  7 centroid */
    {1, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0},                  /*  8 terngrad */
    {127, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0},                /*  9 natural, l2 */
    {127, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0},                /* 10 natural, linf */
    {65535, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0},              /* 11 stc */
    {65535, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0},              /* 12 nearest */
    {65535, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0},              /* 13 fitted */
};

AQ_API const aq_traits *aq_traits_of(int32_t quantizer) {
    return quantizer >= 0 && quantizer < (int32_t)(sizeof TRAITS / sizeof *TRAITS) ? &TRAITS[quantizer] : NULL;
}

static uint32_t read32(const uint8_t *at) {
    uint32_t number;
    memcpy(&number, at, sizeof number);
    return number;
}

static uint64_t read64(const uint8_t *at) {
    uint64_t number;
    memcpy(&number, at, sizeof number);
    return number;
}

static float read_float(const uint8_t *at) {
    float number;
    memcpy(&number, at, sizeof number);
    return number;
}

/* -- segments: how many there are, and where they begin */

/* The blocks of 2^k elements that a rotating quantizer cuts a segment into: whole ones of the largest size, then one for
 * each bit of what is left, the largest first. */
static int64_t blocks_of(int64_t length, int64_t largest) {
    return length / largest + __builtin_popcountll((uint64_t)(length % largest));
}

static int64_t block_at(int64_t left, int64_t largest) {
    return left >= largest ? largest : (int64_t)1 << aq_floor_log2((uint64_t)left);
}

static int64_t largest_block(int32_t way) { return way == SMALL_BLOCKS ? AQ_LARGEST_BLOCK : AQ_MOST_BLOCK; }

static int64_t known_blocks(const aq_known *known, int64_t largest) {
    if (!known->offsets) return blocks_of((int64_t)known->dimension, largest);
    int64_t count = 0;
    for (int64_t j = 0; j < known->segments; j++)
        count += blocks_of(known->offsets[j + 1] - known->offsets[j], largest);
    return count;
}

/* Write where the known segments' blocks begin, or compare: whether these are their offsets. */
static int32_t cut_known(const aq_known *known, int64_t largest, int64_t *out, const int64_t *expected, int64_t count) {
    int64_t place = 0, segments = known->offsets ? known->segments : 1, position = 0;
    for (int64_t j = 0; j < segments; j++) {
        int64_t end = known->offsets ? known->offsets[j + 1] : (int64_t)known->dimension;
        while (position < end) {
            if (out) out[place] = position;
            else if (place >= count || expected[place] != position) return 0;
            position += block_at(end - position, largest);
            place++;
        }
    }
    if (out) out[place] = position;
    return place == count;
}

AQ_API void aq_offsets(const uint8_t *frame, const aq_header *header, const aq_known *known, int64_t *offsets) {
    int64_t count = (int64_t)header->scales, dimension = (int64_t)header->dimension;
    int32_t listed = header->whole ? header->layout == LIST : header->layout == LISTED;
    if (listed) {
        uint64_t place = header->lengths_at, length;
        int32_t wrong;
        offsets[0] = 0;
        for (int64_t j = 0; j < count; j++) {
            place = aq_read_varint(frame, place, header->scales_at, &length, &wrong);
            offsets[j + 1] = offsets[j] + (int64_t)length;
        }
    } else if (!header->segmented) {
        offsets[0] = 0;
        offsets[1] = dimension;
    } else if (header->whole) {
        for (int64_t j = 0; j <= count; j++) offsets[j] = aq_least(j * (int64_t)header->bucket, dimension);
    } else if (header->layout == AS_KNOWN) {
        memcpy(offsets, known->offsets, (uint64_t)(count + 1) * sizeof *offsets);
    } else {
        cut_known(known, largest_block(header->layout), offsets, NULL, count);
    }
}

/* -- reading */

/* Check a list of lengths from lengths_at on, and find its end. */
static int32_t read_lengths(const uint8_t *frame, uint64_t end, int32_t rotates, aq_header *h, aq_error *error) {
    uint64_t place = h->lengths_at, sum = 0, length = 0;
    int32_t wrong = 0, empty = 0, uneven = 0;
    for (uint64_t j = 0; j < h->scales; j++) {
        place = aq_read_varint(frame, place, end, &length, &wrong);
        if (wrong) return aq_fail(error, wrong, 0, 0, 0, 0);
        empty |= length == 0;
        uneven |= length > AQ_MOST_BLOCK || (length & (length - 1)) != 0;
        sum += length; /* below 2^35 each, and no more of them than bytes */
    }
    if (empty || sum != h->dimension) return aq_fail(error, AQ_LENGTHS, (int64_t)sum, (int64_t)h->dimension, 0, 0);
    if (rotates && uneven) return aq_fail(error, AQ_BLOCKS, 0, 0, 0, 0);
    h->scales_at = place;
    return AQ_FINE;
}

static int32_t is_block(uint64_t length) { return length <= AQ_MOST_BLOCK && (length & (length - 1)) == 0; }

/* The scales, the further number and the key, checked; *place: behind the segments, and at last behind all. */
static int32_t read_tail(const uint8_t *frame, uint64_t end, const aq_traits *traits, int32_t keyed, uint64_t s,
                         aq_header *h, aq_error *error) {
    uint64_t place = h->scales_at;
    if (h->scales > (end - place) / 4) return aq_fail(error, AQ_SCALES_END, 0, 0, 0, 0);
    place += 4 * h->scales;
    if (traits->numbered) {
        if (end - place < 4) return aq_fail(error, AQ_SCALES_END, 0, 0, 0, 0);
        h->number = read_float(frame + place);
        place += 4;
    }
    if (keyed) {
        if (end - place < 8) return aq_fail(error, AQ_KEY_END, 0, 0, 0, 0);
        h->key = read64(frame + place);
        place += 8;
    }
    if (s < 1 || s > traits->most) return aq_fail(error, AQ_LEVELS, (int64_t)s, (int64_t)traits->most, 0, 0);
    h->s = (uint32_t)s;
    uint32_t largest = 0;
    for (uint64_t j = 0; j < h->scales; j++) { /* the bits of floats from 0 on are ordered like the values */
        uint32_t scale = read32(frame + h->scales_at + 4 * j);
        scale = scale == 0x80000000u ? 0 : scale; /* -0 */
        largest = scale > largest ? scale : largest;
    }
    if (largest >= 0x7f800000u) return aq_fail(error, AQ_SCALE, 0, 0, 0, 0); /* negative, NaN or infinite */
    memcpy(&h->largest_scale, &largest, sizeof largest);
    if (traits->numbered && !(h->number >= traits->least && h->number <= traits->highest))
        return aq_fail(error, AQ_FURTHER, 0, 0, 0, 0);
    h->top = (int64_t)traits->reach * h->s + traits->beyond;
    if (traits->clip > 0) {
        double reached = traits->clip * h->s / (double)h->number;
        h->top = (int64_t)reached;
        h->top += (double)h->top < reached;
    }
    if (traits->linear) {
        h->bound = (double)h->largest_scale * ((double)h->top / (traits->divides ? h->s : 1));
        if (h->bound > LARGEST_FLOAT) {
            error->real[0] = h->largest_scale, error->real[1] = h->bound;
            return aq_fail(error, AQ_BOUND, 0, 0, 0, 0);
        }
    }
    h->body_at = place;
    return AQ_FINE;
}

static int32_t read_segments(const uint8_t *frame, uint64_t end, int32_t rotates, aq_header *h, aq_error *error) {
    uint64_t count = h->scales, d = h->dimension;
    int32_t wrong = 0;
    /* Every scale takes 4 bytes, so a count beyond this is a lie. */
    if (count > d || count > (end - FIXED_PART) / 4)
        return aq_fail(error, AQ_MANY_SCALES, (int64_t)count, (int64_t)end, (int64_t)d, 0);
    h->lengths_at = h->scales_at = FIXED_PART;
    h->segmented = h->layout != WHOLE;
    if (h->layout == WHOLE) {
        if (count > 1) return aq_fail(error, AQ_NO_SEGMENTS, (int64_t)count, 0, 0, 0);
        return rotates && !is_block(d) ? aq_fail(error, AQ_BLOCKS, 0, 0, 0, 0) : AQ_FINE;
    }
    if (h->layout == LIST) return read_lengths(frame, end, rotates, h, error);
    if (h->layout != BUCKETS) return aq_fail(error, AQ_LAYOUT, h->layout, 0, 0, 0);
    h->scales_at = aq_read_varint(frame, FIXED_PART, end, &h->bucket, &wrong);
    if (wrong) return aq_fail(error, wrong, 0, 0, 0, 0);
    if (h->bucket < 1 || (d + h->bucket - 1) / h->bucket != count)
        return aq_fail(error, AQ_BUCKETS, (int64_t)h->bucket, (int64_t)count, (int64_t)d, 0);
    uint64_t last = d - (count - 1) * h->bucket;
    if (rotates && !(is_block(last) && (count == 1 || is_block(h->bucket))))
        return aq_fail(error, AQ_BLOCKS, 0, 0, 0, 0);
    return AQ_FINE;
}

static int32_t read_whole(const uint8_t *frame, uint64_t size, uint64_t dimension, const aq_traits *traits,
                          aq_header *h, aq_error *error) {
    static const aq_traits floats = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    if (size < FIXED_PART + CHECKSUM) return aq_fail(error, AQ_SHORT, (int64_t)size, FIXED_PART + CHECKSUM, 0, 0);
    if (memcmp(frame, MAGIC, sizeof MAGIC)) return aq_fail(error, AQ_MAGIC, 0, 0, 0, 0);
    if (frame[4] != VERSION) return aq_fail(error, AQ_VERSION, frame[4], VERSION, 0, 0);
    h->body_size = read64(frame + 24);
    if (h->body_size > size) /* before the checksum, so that truncation is called by its name */
        return aq_fail(error, AQ_TRUNCATED, (int64_t)h->body_size, (int64_t)size, 0, 0);
    uint64_t end = size - CHECKSUM;
    if (aq_checksum(0, frame, end) != read32(frame + end)) return aq_fail(error, AQ_CHECKSUM, 0, 0, 0, 0);
    h->whole = 1;
    h->quantizer = frame[5], h->codec = frame[6], h->layout = frame[7];
    h->scales = read32(frame + 12), h->dimension = read64(frame + 16);
    uint32_t s = read32(frame + 8);
    if (h->quantizer == FLOAT32) traits = &floats;
    else if (!traits) traits = aq_traits_of(h->quantizer);
    if (!traits) return aq_fail(error, AQ_QUANTIZER, h->quantizer, 0, 0, 0);
    if (dimension && h->dimension != dimension)
        return aq_fail(error, AQ_DIMENSION, (int64_t)h->dimension, (int64_t)dimension, 0, 0);
    if (h->dimension < 1 || h->dimension > MAX_DIMENSION)
        return aq_fail(error, AQ_TOO_LARGE, (int64_t)h->dimension, 0, 0, 0);
    if (h->quantizer == FLOAT32) {
        if (h->codec != AQ_RAW || h->layout != WHOLE || s || h->scales) return aq_fail(error, AQ_FLOATS, 0, 0, 0, 0);
        h->lengths_at = h->scales_at = h->body_at = FIXED_PART;
    } else {
        if (!h->scales) return aq_fail(error, AQ_NO_SCALES, 0, 0, 0, 0);
        int32_t wrong = read_segments(frame, end, traits->rotates, h, error);
        if (!wrong) wrong = read_tail(frame, end, traits, traits->keyed, s, h, error);
        if (wrong) return wrong;
    }
    for (; h->body_at % 8 && h->body_at < end; h->body_at++)
        if (frame[h->body_at]) return aq_fail(error, AQ_PADDING, 0, 0, 0, 0);
    if (h->body_at % 8 || h->body_at + h->body_size != end)
        return aq_fail(error, AQ_SIZE, (int64_t)size,
                       (int64_t)(h->body_at + (8 - h->body_at % 8) % 8 + h->body_size + CHECKSUM), 0, 0);
    return AQ_FINE;
}

static int32_t read_short(const uint8_t *frame, uint64_t size, uint64_t dimension, const aq_known *known,
                          const aq_traits *traits, aq_header *h, aq_error *error) {
    uint64_t s = 0, place;
    int32_t wrong = 0;
    if (!traits) traits = aq_traits_of(known->quantizer);
    if (size < 3 || known->quantizer == FLOAT32) return aq_fail(error, AQ_SHORT_FORM, 0, 0, 0, 0);
    if (!traits) return aq_fail(error, AQ_QUANTIZER, known->quantizer, 0, 0, 0);
    if (dimension && dimension != known->dimension)
        return aq_fail(error, AQ_DIMENSION, (int64_t)known->dimension, (int64_t)dimension, 0, 0);
    h->quantizer = known->quantizer, h->codec = frame[1], h->layout = frame[0] & LISTED;
    h->dimension = known->dimension, h->key = known->key;
    int32_t keyed = (frame[0] & OTHER_KEY) != 0;
    place = aq_read_varint(frame, 2, size, &s, &wrong);
    if (wrong) return aq_fail(error, wrong, 0, 0, 0, 0);
    int32_t blocks = h->layout == SMALL_BLOCKS || h->layout == LARGE_BLOCKS;
    if ((blocks && !traits->rotates) || (keyed && !traits->keyed)) return aq_fail(error, AQ_FLAGS, frame[0], 0, 0, 0);
    h->segmented = h->layout != AS_KNOWN || known->offsets;
    h->scales = 1;
    if (h->layout == LISTED) {
        place = aq_read_varint(frame, place, size, &h->scales, &wrong);
        if (wrong) return aq_fail(error, wrong, 0, 0, 0, 0);
        if (h->scales < 1 || h->scales > size)
            return aq_fail(error, AQ_MANY_SEGMENTS, (int64_t)h->scales, (int64_t)size, 0, 0);
    } else if (blocks) {
        h->scales = (uint64_t)known_blocks(known, largest_block(h->layout));
    } else if (known->offsets) {
        h->scales = (uint64_t)known->segments;
    }
    h->lengths_at = h->scales_at = place;
    if (h->layout == LISTED) {
        wrong = read_lengths(frame, size, traits->rotates, h, error);
        if (wrong) return wrong;
    } else if (traits->rotates && h->layout == AS_KNOWN) {
        int32_t even = known->offsets || is_block(known->dimension);
        for (int64_t j = 0; known->offsets && j < known->segments; j++)
            even &= is_block((uint64_t)(known->offsets[j + 1] - known->offsets[j]));
        if (!even) return aq_fail(error, AQ_BLOCKS, 0, 0, 0, 0);
    }
    if (traits->keyed && !keyed && !known->keyed) return aq_fail(error, AQ_NO_KEY, 0, 0, 0, 0);
    wrong = read_tail(frame, size, traits, keyed, s, h, error);
    h->body_size = size - h->body_at;
    return wrong;
}

AQ_API int32_t aq_check(const uint8_t *frame, uint64_t size, uint64_t dimension, const aq_known *known,
                        const aq_traits *traits, aq_header *header, aq_error *error) {
    memset(header, 0, sizeof *header);
    header->size = size;
    if (known && size && frame[0] <= (LISTED | OTHER_KEY)) return read_short(frame, size, dimension, known, traits, header, error);
    return read_whole(frame, size, dimension, traits, header, error);
}

/* -- writing */

static int64_t length_of(const aq_plan *plan, int64_t j) { return plan->offsets[j + 1] - plan->offsets[j]; }

/* The elements of a bucket, where the segments are buckets: all of one length, the last one perhaps shorter. */
static int64_t bucket_of(const aq_plan *plan) {
    int64_t size = length_of(plan, 0), count = plan->segments;
    if (count != ((int64_t)plan->dimension + size - 1) / size) return 0;
    for (int64_t j = 1; j < count - 1; j++)
        if (length_of(plan, j) != size) return 0;
    return length_of(plan, count - 1) <= size ? size : 0;
}

static uint64_t write_tail(const aq_plan *plan, int32_t keyed, uint8_t *out, uint64_t place) {
    uint64_t bytes = plan->scales ? 4 * (uint64_t)plan->segments : 0;
    memcpy(out + place, plan->scales, bytes);
    place += bytes;
    if (plan->numbered) {
        memcpy(out + place, &plan->number, 4);
        place += 4;
    }
    if (keyed) {
        memcpy(out + place, &plan->key, 8);
        place += 8;
    }
    return place;
}

static uint64_t lengths_size(const aq_plan *plan) {
    uint64_t bytes = 0;
    for (int64_t j = 0; j < plan->segments; j++) bytes += aq_varint_size((uint64_t)length_of(plan, j));
    return bytes;
}

uint64_t aq_header_size(const aq_plan *plan) {
    uint64_t lengths = 0;
    if (plan->segmented) {
        int64_t bucket = bucket_of(plan);
        lengths = bucket ? aq_varint_size((uint64_t)bucket) : lengths_size(plan);
    }
    uint64_t size = FIXED_PART + lengths + (plan->scales ? 4 * (uint64_t)plan->segments : 0) + 4 * !!plan->numbered +
                    8 * !!plan->keyed;
    return (size + 7) & ~(uint64_t)7; /* readers take whole words of the body */
}

static void write_whole(const aq_plan *plan, int32_t codec, uint64_t body_size, uint8_t *out) {
    int64_t bucket = plan->segmented ? bucket_of(plan) : 0;
    uint32_t s = plan->s, scales = plan->scales ? (uint32_t)plan->segments : 0;
    uint64_t place = FIXED_PART;
    memcpy(out, MAGIC, sizeof MAGIC);
    out[4] = VERSION, out[5] = (uint8_t)plan->quantizer, out[6] = (uint8_t)codec;
    out[7] = !plan->segmented ? WHOLE : bucket ? BUCKETS : LIST;
    memcpy(out + 8, &s, 4);
    memcpy(out + 12, &scales, 4);
    memcpy(out + 16, &plan->dimension, 8);
    memcpy(out + 24, &body_size, 8);
    if (bucket) place = aq_write_varint(out, place, (uint64_t)bucket);
    else if (plan->segmented)
        for (int64_t j = 0; j < plan->segments; j++) place = aq_write_varint(out, place, (uint64_t)length_of(plan, j));
    place = write_tail(plan, plan->keyed, out, place);
    while (place % 8) out[place++] = 0;
}

/* How a receiver that knows this is told the segments: the first way that gives them. */
static int32_t way_of(const aq_plan *plan) {
    const aq_known *known = plan->known;
    const aq_traits *traits = aq_traits_of(plan->quantizer);
    if (!plan->segmented && !known->offsets) return AS_KNOWN;
    if (plan->segmented && known->offsets && known->segments == plan->segments &&
        !memcmp(known->offsets, plan->offsets, (uint64_t)(plan->segments + 1) * sizeof *plan->offsets))
        return AS_KNOWN;
    if (traits && traits->rotates && plan->segmented)
        for (int32_t way = SMALL_BLOCKS; way <= LARGE_BLOCKS; way++)
            if (cut_known(known, largest_block(way), NULL, plan->offsets, plan->segments)) return way;
    return LISTED;
}

/* A short header, if it is one of at most `room` bytes; returns its size, or 0 where it has to be a whole one. */
static uint64_t write_short(const aq_plan *plan, int32_t codec, uint64_t body_size, uint8_t *out, uint64_t room) {
    const aq_known *known = plan->known;
    if (!known || known->quantizer != plan->quantizer || known->dimension != plan->dimension || body_size > LONGEST)
        return 0;
    int32_t way = way_of(plan), keyed = plan->keyed && !(known->keyed && known->key == plan->key);
    if (way == LISTED && (!plan->segmented || 32 + lengths_size(plan) + 4 * (uint64_t)plan->segments > room)) return 0;
    uint64_t place = 2;
    out[0] = (uint8_t)(way | (keyed ? OTHER_KEY : 0)), out[1] = (uint8_t)codec;
    place = aq_write_varint(out, place, plan->s);
    if (way == LISTED) {
        place = aq_write_varint(out, place, (uint64_t)plan->segments);
        for (int64_t j = 0; j < plan->segments; j++) place = aq_write_varint(out, place, (uint64_t)length_of(plan, j));
    }
    return write_tail(plan, keyed, out, place);
}

int64_t aq_finish(const aq_plan *plan, int32_t codec, uint64_t head, uint64_t body_size) {
    uint64_t size = write_short(plan, codec, body_size, plan->out, head);
    if (size) {
        memmove(plan->out + size, plan->out + head, body_size);
        return (int64_t)(size + body_size);
    }
    write_whole(plan, codec, body_size, plan->out);
    uint32_t checksum = aq_checksum(0, plan->out, head + body_size);
    memcpy(plan->out + head + body_size, &checksum, sizeof checksum);
    return (int64_t)(head + body_size + CHECKSUM);
}

AQ_API int64_t aq_frame(const aq_plan *plan, const uint8_t *body, uint64_t size, aq_error *error) {
    uint64_t head = aq_header_size(plan), needed = head + size + CHECKSUM;
    if (needed > plan->room) return -aq_fail(error, AQ_ROOM, (int64_t)needed, 0, 0, 0);
    memcpy(plan->out + head, body, size);
    return aq_finish(plan, plan->codec, head, size);
}

AQ_API uint64_t aq_fixed_frame(const aq_plan *plan) {
    aq_plan here = *plan;
    here.scales = &here.number; /* there will be some: only their number counts here */
    return aq_header_size(&here) + aq_fixed_size((int64_t)plan->dimension, plan->top) + CHECKSUM;
}
