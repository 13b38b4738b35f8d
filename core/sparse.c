/* The code for updates that are almost all zero: where the others are, in gaps, and then what few bits they need.
 *
 * Gaps between non-zero elements are geometric where the density is even. The Golomb code is the best prefix code for
 * such gaps (Gallager and van Voorhis 1975). Its divisor follows the running mean of the gaps, because layers differ.
 */
#include "bits.h"
#include "sparse.h"

#define GAMMA_BITS 61 /* of a level at most */
#define MOST_SHIFT 32 /* a chunk of 2^32 elements holds any vector */
#define FILLED 4096   /* non-zeros in a chunk at least, on average: the directory then takes 0.1 % of the body */
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

int64_t aq_count_nonzeros(const void *values, int32_t bytes, int64_t first, int64_t last) {
    return AQ_PICK(aq_sparse_codes)->count((const uint8_t *)values + bytes * first, bytes, last - first);
}

static void count_tiles(void *context, int64_t first, int64_t last) {
    const finding *f = context;
    for (int64_t tile = first; tile < last; tile++) {
        int64_t end = aq_least(f->dimension, (tile + 1) * AQ_TILE);
        f->counts[tile] = aq_count_nonzeros(f->values, f->bytes, tile * AQ_TILE, end);
    }
}

static void list_tiles(void *context, int64_t first, int64_t last) {
    const finding *f = context;
    int64_t found = f->counts[first];
    AQ_PICK(aq_sparse_codes)->list(f->values, f->bytes, first * AQ_TILE, aq_least(f->dimension, last * AQ_TILE),
                                   f->index + found, f->level + found);
}

int64_t aq_find_levels(const void *values, int32_t bytes, int64_t dimension, uint32_t *index, int32_t *level,
                       int64_t room, int64_t *counts, aq_each each) {
    finding f = {values, bytes, dimension, counts, index, level};
    int64_t tiles = aq_tiles(dimension), total = 0;
    aq_run(each, count_tiles, &f, tiles, 4);
    for (int64_t tile = 0; tile < tiles; tile++) {
        int64_t here = counts[tile];
        counts[tile] = total;
        total += here;
    }
    if (total <= room) aq_run(each, list_tiles, &f, tiles, 4);
    for (int64_t tile = 0; tile < tiles; tile++)
        counts[tile] = (tile + 1 < tiles ? counts[tile + 1] : total) - counts[tile];
    return total <= room ? total : -1;
}

/* -- bodies */

int32_t aq_chunk_shift(int64_t nonzeros, int64_t dimension) {
    int32_t shift = AQ_LEAST_SHIFT;
    while (nonzeros << shift < FILLED * dimension && (int64_t)1 << shift < dimension) shift++;
    return shift;
}

/* Bytes that a chunk takes at most: three gaps, a sign and a gamma for each element, two gammas, and what aq_put writes
 * beyond the end. */
static uint64_t chunk_most(int64_t count, int32_t shift) {
    return (uint64_t)count * (3 * (AQ_LONGEST_GAP + (uint64_t)shift) + 1 + GAMMA_BITS) / 8 + 40;
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
    const aq_sparse_kernels *codes = AQ_PICK(aq_sparse_codes);
    for (int64_t chunk = first; chunk < last; chunk++) {
        int64_t mine = w->edges[chunk], count = w->edges[chunk + 1] - mine, start = chunk << w->shift;
        int64_t size = aq_least((int64_t)1 << w->shift, w->dimension - start);
        uint8_t *out = scratch_of(w, chunk);
        w->sizes[chunk] = 0;
        if (count)
            w->sizes[chunk] = (uint64_t)(codes->write(w->index + mine, w->level + mine, count, start, size,
                                                      w->places + 2 * mine, out) - out);
    }
}

int64_t aq_sparse_write(const uint32_t *index, const int32_t *level, int64_t count, const int64_t *counts,
                        int64_t dimension, uint8_t *body, uint64_t room, aq_arena *arena, aq_each each,
                        aq_error *error) {
    aq_arena mine = *arena;
    int32_t shift = aq_chunk_shift(count, dimension);
    int64_t chunks = ((dimension - 1) >> shift) + 1, tiles = aq_tiles(dimension);
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
    uint64_t total = 1, place = 1;
    int64_t final = -1; /* the last chunk that is not empty: its size is not written */
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        total += aq_varint_size((uint64_t)(edges[chunk + 1] - edges[chunk])) + sizes[chunk];
        if (!sizes[chunk]) continue;
        if (final >= 0) total += aq_varint_size(sizes[final]);
        final = chunk;
    }
    if (total > room) return -aq_fail(error, AQ_ROOM, (int64_t)total, 0, 0, 0);
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

static void read_chunks(void *context, int64_t first, int64_t last) {
    const reading *r = context;
    const aq_sparse_kernels *codes = AQ_PICK(aq_sparse_codes);
    for (int64_t chunk = first; chunk < last; chunk++) {
        int64_t mine = r->edges[chunk], count = r->edges[chunk + 1] - mine, start = chunk << r->shift;
        int64_t size = aq_least((int64_t)1 << r->shift, r->dimension - start);
        r->wrong[chunk] = 0;
        if (count)
            r->wrong[chunk] = (uint8_t)codes->read(r->body, r->size, 8 * r->begins[chunk], 8 * r->begins[chunk + 1],
                                                   start, size, r->top, count, r->index + mine, r->level + mine,
                                                   r->places + mine);
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
