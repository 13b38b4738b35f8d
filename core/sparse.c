/* The code for updates that are almost all zero: where the others are, in gaps, and then what few bits they need.
 *
 * Gaps between non-zero elements are geometric where the density is even. The Golomb code is the best prefix code for
 * such gaps (Gallager and van Voorhis 1975). Its divisor follows the running mean of the gaps, because layers differ.
 */
#include "sparse.h"

#include "bits.h"

#define LONGEST 20       /* ones before a gap is written out instead */
#define MEMORY 4         /* the running mean forgets with 1 / 2^4 */
#define LN2 177          /* ln 2 in 256ths: the best divisor is ln 2 x the mean */
#define GAMMA_BITS 61    /* of a level at most */
#define MOST_SHIFT 32    /* a chunk of 2^32 elements holds any vector */
#define FILLED 4096      /* non-zeros in a chunk at least, on average: the directory then takes 0.1 % of the body */
#define ROW 64           /* elements that are looked at together */
#define WORTH_A_THREAD 200000 /* bytes: reading fewer takes less time than waking a thread */

/* -- finding what is not 0 */

typedef struct {
    const void *values;
    int32_t bytes;
    int64_t dimension;
    int64_t *counts; /* of each tile; then, where its list begins */
    uint32_t *index;
    int32_t *level;
} finding;

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
    static int64_t count_##type(const type *values, int64_t first, int64_t last) {                                     \
        int64_t count = 0;                                                                                             \
        for (int64_t start = first; start < last; start += 128) { /* so few that a byte holds their number */          \
            int64_t end = aq_least(last, start + 128);                                                                 \
            uint8_t some = 0;                                                                                          \
            for (int64_t j = start; j < end; j++) some = (uint8_t)(some + (values[j] != 0));                           \
            count += some;                                                                                             \
        }                                                                                                              \
        return count;                                                                                                  \
    }                                                                                                                  \
    static void list_##type(void *context, int64_t first, int64_t last) {                                              \
        const finding *f = context;                                                                                    \
        for (int64_t tile = first; tile < last; tile++) {                                                              \
            int64_t end = aq_least(f->dimension, (tile + 1) * AQ_TILE), found = f->counts[tile];                       \
            for (int64_t start = tile * AQ_TILE; start < end; start += ROW) {                                          \
                const type *row = (const type *)f->values + start;                                                     \
                uint8_t marks[ROW] = {0};                                                                              \
                if (start + ROW <= end)                                                                                \
                    for (int j = 0; j < ROW; j++) marks[j] = row[j] != 0;                                              \
                else                                                                                                   \
                    for (int j = 0; j < end - start; j++) marks[j] = row[j] != 0;                                      \
                for (uint64_t bits = gather_bits(marks); bits; bits &= bits - 1, found++) {                            \
                    int j = __builtin_ctzll(bits);                                                                     \
                    f->index[found] = (uint32_t)(start + j);                                                           \
                    f->level[found] = row[j];                                                                          \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }
FINDERS(int8_t)
FINDERS(int16_t)
FINDERS(int32_t)

int64_t aq_count_nonzeros(const void *values, int32_t bytes, int64_t first, int64_t last) {
    return bytes == 1   ? count_int8_t(values, first, last)
           : bytes == 2 ? count_int16_t(values, first, last)
                        : count_int32_t(values, first, last);
}

static void count_tiles(void *context, int64_t first, int64_t last) {
    const finding *f = context;
    for (int64_t tile = first; tile < last; tile++) {
        int64_t end = aq_least(f->dimension, (tile + 1) * AQ_TILE);
        f->counts[tile] = aq_count_nonzeros(f->values, f->bytes, tile * AQ_TILE, end);
    }
}

int64_t aq_find_levels(const void *values, int32_t bytes, int64_t dimension, uint32_t *index, int32_t *level,
                       int64_t room, int64_t *counts, aq_each each) {
    finding f = {values, bytes, dimension, counts, index, level};
    int64_t tiles = (dimension + AQ_TILE - 1) / AQ_TILE, total = 0;
    aq_run(each, count_tiles, &f, tiles, 4);
    for (int64_t tile = 0; tile < tiles; tile++) {
        int64_t here = counts[tile];
        counts[tile] = total;
        total += here;
    }
    if (total <= room) aq_run(each, bytes == 1 ? list_int8_t : bytes == 2 ? list_int16_t : list_int32_t, &f, tiles, 4);
    for (int64_t tile = 0; tile < tiles; tile++)
        counts[tile] = (tile + 1 < tiles ? counts[tile + 1] : total) - counts[tile];
    return total <= room ? total : -1;
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
    if (quotient >= LONGEST) {
        *code = aq_ones(LONGEST) | (uint64_t)(gap - LONGEST * divisor) << LONGEST;
        return LONGEST + width;
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

/* Write the non-zero elements of one chunk, which begins at element `start`; returns the place behind the bytes.
 * places: scratch for two numbers for each element. */
static uint8_t *write_chunk(const uint32_t *index, const int32_t *level, int64_t count, int64_t start, int64_t size,
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

/* -- bodies */

int32_t aq_chunk_shift(int64_t nonzeros, int64_t dimension) {
    int32_t shift = AQ_LEAST_SHIFT;
    while ((uint64_t)nonzeros << shift < (uint64_t)FILLED * (uint64_t)dimension && (int64_t)1 << shift < dimension) shift++;
    return shift;
}

/* Bytes that a chunk takes at most: three gaps, a sign and a gamma for each element, two gammas, and what aq_put writes
 * beyond the end. */
static uint64_t chunk_most(int64_t count, int32_t shift) {
    return (uint64_t)count * (3 * (LONGEST + (uint64_t)shift) + 1 + GAMMA_BITS) / 8 + 40;
}

uint64_t aq_sparse_most(int64_t count, int64_t dimension) {
    int32_t shift = aq_chunk_shift(count, dimension);
    uint64_t chunks = (((uint64_t)dimension - 1) >> shift) + 1;
    return 1 + chunks * 50 + chunk_most(count, shift);
}

typedef struct {
    const uint32_t *index;
    const int32_t *level;
    const int64_t *edges; /* of the chunks' lists */
    uint32_t *places;
    uint8_t *scratch; /* chunk c has its bytes at chunk_most(edges[c]) + 40 c */
    uint64_t *sizes;
    int64_t dimension;
    int32_t shift;
} writing;

static uint8_t *scratch_of(const writing *w, int64_t chunk) {
    return w->scratch + chunk_most(w->edges[chunk], w->shift) + 41 * (uint64_t)chunk;
}

static void write_chunks(void *context, int64_t first, int64_t last) {
    const writing *w = context;
    for (int64_t chunk = first; chunk < last; chunk++) {
        int64_t mine = w->edges[chunk], count = w->edges[chunk + 1] - mine, start = chunk << w->shift;
        int64_t size = aq_least((int64_t)1 << w->shift, w->dimension - start);
        uint8_t *out = scratch_of(w, chunk);
        w->sizes[chunk] = !count ? 0 : (uint64_t)(write_chunk(w->index + mine, w->level + mine, count, start, size,
                                                              w->places + 2 * mine, out) - out);
    }
}

int64_t aq_sparse_write(const uint32_t *index, const int32_t *level, int64_t count, const int64_t *counts,
                        int64_t dimension, uint8_t *body, uint64_t room, aq_arena *arena, aq_each each,
                        aq_error *error) {
    aq_arena mine = *arena;
    int32_t shift = aq_chunk_shift(count, dimension);
    int64_t chunks = ((dimension - 1) >> shift) + 1, tiles = (dimension + AQ_TILE - 1) / AQ_TILE;
    int64_t *edges = aq_take(&mine, 8 * ((uint64_t)chunks + 1));
    uint64_t *sizes = aq_take(&mine, 8 * (uint64_t)chunks);
    uint32_t *places = aq_take(&mine, 8 * (uint64_t)count);
    uint8_t *scratch = aq_take(&mine, chunk_most(count, shift) + 41 * (uint64_t)chunks + 8);
    if (aq_lacks(&mine, error)) return -1;
    edges[0] = 0;
    if (chunks > 1) {
        int64_t each_has = (int64_t)1 << (shift - AQ_LEAST_SHIFT);
        for (int64_t chunk = 0; chunk < chunks; chunk++) {
            edges[chunk + 1] = edges[chunk];
            for (int64_t t = chunk * each_has; t < aq_least(tiles, (chunk + 1) * each_has); t++)
                edges[chunk + 1] += counts[t];
        }
    }
    edges[chunks] = count;
    writing w = {index, level, edges, places, scratch, sizes, dimension, shift};
    aq_run(each, write_chunks, &w, chunks, 4);
    uint64_t total = 0, place = 1;
    int64_t final = -1; /* the last chunk that is not empty */
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        total += sizes[chunk];
        if (sizes[chunk]) final = chunk;
    }
    /* A directory has ten bytes for a chunk at most: only where that might not fit, its size is looked at. */
    uint64_t directory = 1 + 10 * (uint64_t)chunks;
    if (directory + total > room) {
        uint8_t number[10];
        directory = 1;
        for (int64_t chunk = 0; chunk < chunks; chunk++) {
            directory += aq_write_varint(number, 0, (uint64_t)(edges[chunk + 1] - edges[chunk]));
            if (sizes[chunk] && chunk != final) directory += aq_write_varint(number, 0, sizes[chunk]);
        }
        if (directory + total > room) {
            aq_fail(error, AQ_ROOM, (int64_t)(directory + total), 0, 0, 0);
            return -1;
        }
    }
    body[0] = (uint8_t)shift;
    for (int64_t chunk = 0; chunk < chunks; chunk++)
        place = aq_write_varint(body, place, (uint64_t)(edges[chunk + 1] - edges[chunk]));
    for (int64_t chunk = 0; chunk < final; chunk++)
        if (sizes[chunk]) place = aq_write_varint(body, place, sizes[chunk]);
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        memcpy(body + place, scratch_of(&w, chunk), sizes[chunk]);
        place += sizes[chunk];
    }
    return (int64_t)place;
}

/* -- reading */

typedef struct {
    const uint8_t *body;
    uint64_t size;
    int64_t dimension, top, chunks, count;
    int32_t shift;
    int64_t *edges;   /* of the chunks' lists */
    uint64_t *begins; /* of the chunks' bytes */
    uint8_t *wrong;   /* what is, with each chunk: enum aq_chunk */
    uint32_t *index, *places;
    int32_t *level;
} reading;

/* Check the first byte; fills shift and chunks. */
static int32_t open_body(reading *r, aq_error *error) {
    r->shift = r->size ? r->body[0] : 0;
    if (r->shift < AQ_LEAST_SHIFT || r->shift > MOST_SHIFT)
        return aq_fail(error, AQ_SHIFT, r->size ? r->shift : -1, 0, 0, 0);
    r->chunks = ((r->dimension - 1) >> r->shift) + 1;
    if ((uint64_t)r->chunks > r->size - 1) /* each has at least one byte: refused before there is memory for them */
        return aq_fail(error, AQ_DIRECTORY, r->chunks, (int64_t)r->size, 0, 0);
    return AQ_FINE;
}

/* Check the directory behind it; fills count and, where they are not NULL, edges and begins. */
static int32_t read_directory(reading *r, aq_error *error) {
    uint64_t number = 0, lengths = 1, known = 0;
    int32_t wrong = 0;
    int64_t filled = 0;
    for (int64_t chunk = 0; chunk < r->chunks; chunk++) {
        lengths = aq_read_varint(r->body, lengths, r->size, &number, &wrong);
        if (wrong) return aq_fail(error, AQ_DIRECTORY_NUMBER, wrong, 0, 0, 0);
        filled += number > 0;
    }
    uint64_t start = lengths;
    for (int64_t k = 1; k < filled; k++) {
        start = aq_read_varint(r->body, start, r->size, &number, &wrong);
        if (wrong) return aq_fail(error, AQ_DIRECTORY_NUMBER, wrong, 0, 0, 0);
        known += number;
    }
    uint64_t behind = r->size - start;
    if (filled && known > behind) return aq_fail(error, AQ_DIRECTORY_SHORT, (int64_t)behind, 0, 0, 0);
    if (!filled && behind) return aq_fail(error, AQ_DIRECTORY_LONG, (int64_t)behind, 0, 0, 0);
    r->count = 0;
    for (int64_t chunk = 0, place = 1; chunk < r->chunks; chunk++) {
        uint64_t count, length = 0;
        place = (int64_t)aq_read_varint(r->body, (uint64_t)place, r->size, &count, &wrong);
        if (count) {
            length = r->size - start; /* the last one takes what remains */
            if (--filled) lengths = aq_read_varint(r->body, lengths, r->size, &length, &wrong);
            int64_t size = aq_least(r->dimension - (chunk << r->shift), (int64_t)1 << r->shift);
            /* An element takes two bits at least, which bounds the memory by the bytes that came. */
            if (count > (uint64_t)size || count > 4 * length)
                return aq_fail(error, AQ_DIRECTORY_COUNT, chunk, (int64_t)count, size, (int64_t)length);
        }
        if (r->edges) r->edges[chunk] = r->count, r->begins[chunk] = start;
        start += length;
        r->count += (int64_t)count;
    }
    if (r->edges) r->edges[r->chunks] = r->count, r->begins[r->chunks] = start;
    return AQ_FINE;
}

/* Undo `gap_code` at the low end of `view`; returns the gap. */
static inline int64_t read_gap(uint64_t view, int64_t mean, int64_t width, int64_t *length) {
    int64_t divisor = divisor_of(mean), quotient = __builtin_ctzll(~view | (uint64_t)1 << LONGEST);
    if (quotient == LONGEST) {
        *length = LONGEST + width;
        return LONGEST * divisor + (int64_t)(view >> LONGEST & aq_ones(width));
    }
    int64_t bits = width_of(divisor), high = bits > 0 ? bits - 1 : 0;
    view >>= quotient + 1;
    int64_t rest = (int64_t)(view & aq_ones(high)), few = ((int64_t)1 << bits) - divisor;
    int64_t both = 2 * rest + (int64_t)(view >> high & 1) - few, longer = rest >= few;
    rest = longer ? both : rest;
    rest = bits > 0 ? rest : 0;
    *length = quotient + bits + longer;
    return quotient * divisor + rest;
}

/* Returns the number, or most + 1 where it is larger; moves *position behind it. */
static inline int64_t read_gamma(const reading *r, uint64_t *position, int64_t most) {
    int64_t bits = __builtin_ctzll(~aq_look(r->body, r->size, *position) | (uint64_t)1 << 33);
    *position += (uint64_t)bits + 1;
    int64_t number = (int64_t)((aq_look(r->body, r->size, *position) & aq_ones(bits)) + ((uint64_t)1 << bits));
    *position += (uint64_t)bits;
    return number <= most ? number : most + 1;
}

/* Whatever the bits are: no code is looked at from beyond the chunk's end. Returns what is wrong. */
static uint8_t read_chunk(const reading *r, int64_t chunk) {
    uint64_t position = 8 * r->begins[chunk], end = 8 * r->begins[chunk + 1];
    int64_t start = chunk << r->shift, marked = r->edges[chunk + 1] - r->edges[chunk];
    int64_t things = aq_least((int64_t)1 << r->shift, r->dimension - start);
    uint32_t *index = r->index + r->edges[chunk], *places = r->places + r->edges[chunk];
    int32_t *level = r->level + r->edges[chunk];
    for (int64_t reach = 1; reach < 4; reach++) {
        if (reach > 1) {
            if (position >= end) return AQ_RUNS_OUT;
            marked = read_gamma(r, &position, things + 1) - 1;
        }
        if (marked > things) return AQ_TOO_MANY;
        if (marked > 0 && r->top < reach) return AQ_ABOVE_S;
        int64_t mean = start_of(things, marked ? marked : 1), width = width_of(things), expected = 0, length;
        if (reach == 1)
            for (int64_t k = 0; k < marked; k++) {
                if (position >= end) return AQ_RUNS_OUT;
                uint64_t view = aq_look(r->body, r->size, position);
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
                int64_t gap = read_gap(aq_look(r->body, r->size, position), mean, width, &length);
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
        int64_t number = read_gamma(r, &position, r->top - 2);
        if (number > r->top - 2) return AQ_ABOVE_S;
        int32_t more = (int32_t)(number - 1);
        level[places[k]] += level[places[k]] > 0 ? more : -more;
    }
    /* The chunk ends in the byte of its last code, whose unused bits are 0. */
    if (position > end) return AQ_RUNS_OUT;
    if (position + 8 <= end) return AQ_TRAILING;
    return aq_look(r->body, r->size, position) & aq_ones((int64_t)(end - position)) ? AQ_CHUNK_PADDING : 0;
}

static void read_chunks(void *context, int64_t first, int64_t last) {
    const reading *r = context;
    for (int64_t chunk = first; chunk < last; chunk++) {
        r->wrong[chunk] = 0;
        if (r->edges[chunk] < r->edges[chunk + 1]) r->wrong[chunk] = read_chunk(r, chunk);
    }
}

int32_t aq_sparse_count(const uint8_t *body, uint64_t size, int64_t dimension, int64_t *count, aq_error *error) {
    reading r = {.body = body, .size = size, .dimension = dimension};
    int32_t wrong = open_body(&r, error);
    if (!wrong) wrong = read_directory(&r, error);
    *count = r.count;
    return wrong;
}

int32_t aq_sparse_read(const uint8_t *body, uint64_t size, int64_t dimension, int64_t top, uint32_t *index,
                       int32_t *level, aq_arena *arena, aq_each each, aq_error *error) {
    aq_arena mine = *arena;
    reading r = {.body = body, .size = size, .dimension = dimension, .top = top, .index = index, .level = level};
    int32_t wrong = open_body(&r, error);
    if (wrong) return wrong;
    r.edges = aq_take(&mine, 8 * ((uint64_t)r.chunks + 1));
    r.begins = aq_take(&mine, 8 * ((uint64_t)r.chunks + 1));
    r.wrong = aq_take(&mine, (uint64_t)r.chunks);
    if (mine.lacking) r.edges = NULL;
    wrong = read_directory(&r, error);
    if (wrong) return wrong;
    r.places = aq_take(&mine, 4 * (uint64_t)r.count);
    if (aq_lacks(&mine, error)) return AQ_MEMORY;
    aq_run(each, read_chunks, &r, r.chunks, size > WORTH_A_THREAD ? 4 : r.chunks);
    for (int64_t chunk = 0; chunk < r.chunks; chunk++)
        if (r.wrong[chunk]) return aq_fail(error, AQ_CHUNK, chunk, r.wrong[chunk], 0, 0);
    return AQ_FINE;
}
