/* Static rANS on the signed levels: within 1 % of their entropy, for vectors with more than a tenth of non-zeros.
 *
 * A symbol is one level or, where levels are small, a pair of neighbours, so that one look-up yields both. A body has
 * one table of 4096 slots and then a stream for each chunk of 2^c symbols, with 64 states, which vectors of a processor
 * hold, or fewer where there is little to write. Of levels in wide intervals, the low bits follow behind the streams.
 */
#include "dense.h"

#include "bits.h"

#define STRIP 4096 /* symbols that are converted at a time */
#define MOST_LOW (AQ_WIDEST - AQ_MOST_WIDTH)

/* What a stream's symbols are: levels, pairs of them or, where intervals are wide, at most eight for an interval, so
 * that 16 bits hold them all. */
typedef struct {
    const aq_table *table;
    int32_t wide, symbols;
    int32_t *starts; /* where intervals are wide: the first symbol of each */
    int32_t *base;   /* the lowest level of each symbol */
    uint8_t *extra;  /* how many low bits of a level it leaves out */
} alphabet;

static int32_t is_wide(const aq_table *table) {
    if (table->pairs) return 0;
    if (aq_table_largest(table) > 32767) return 1;
    for (int32_t i = 0; i < table->count; i++)
        if (table->width[i] > AQ_MOST_WIDTH) return 1;
    return 0;
}

static inline int32_t kept_width(const aq_table *table, int32_t i) {
    return table->width[i] < AQ_MOST_WIDTH ? table->width[i] : AQ_MOST_WIDTH;
}

/* Takes its lists from the arena, which may lack memory for them. */
static alphabet alphabet_of(const aq_table *table, aq_arena *arena) {
    alphabet a = {table, is_wide(table), 0, NULL, NULL, NULL};
    if (!a.wide) return a;
    for (int32_t i = 0; i < table->count; i++) a.symbols += 1 << kept_width(table, i);
    a.starts = aq_take(arena, 4 * (uint64_t)table->count);
    a.base = aq_take(arena, 4 * (uint64_t)a.symbols);
    a.extra = aq_take(arena, (uint64_t)a.symbols);
    if (arena->lacking) return a;
    for (int32_t i = 0, symbol = 0; i < table->count; i++) {
        int32_t kept = kept_width(table, i), extra = table->width[i] - kept;
        a.starts[i] = symbol;
        for (int32_t raw = 0; raw < 1 << kept; raw++, symbol++) {
            a.base[symbol] = table->lowest[i] + (int32_t)((uint32_t)raw << extra);
            a.extra[symbol] = (uint8_t)extra;
        }
    }
    return a;
}

static inline int32_t lowest_symbol(const alphabet *a, int32_t i) {
    return a->wide ? a->starts[i] : a->table->lowest[i];
}

/* -- writing */

typedef struct {
    const void *values;
    int32_t bytes, lanes, lowest;
    int64_t dimension, chunk, count; /* of symbols */
    alphabet alphabet;
    const int16_t *symbol_of; /* of each level from `first` on, where intervals are wide */
    int64_t first;
    const uint64_t *rows;
    uint16_t *words; /* chunk c has its own from most_words c on */
    int64_t *sizes, most_words;
} writing;

/* Symbols start to start + size. */
static void symbols_of(const writing *w, int64_t start, int64_t size, int16_t *out) {
#define CONVERT(type)                                                                                                  \
    if (w->bytes == (int32_t)sizeof(type)) {                                                                           \
        const type *values = (const type *)w->values + (w->alphabet.table->pairs ? 2 : 1) * start;                     \
        if (w->alphabet.wide)                                                                                          \
            for (int64_t i = 0; i < size; i++) out[i] = w->symbol_of[values[i] - w->first];                            \
        else if (!w->alphabet.table->pairs)                                                                            \
            for (int64_t i = 0; i < size; i++) out[i] = (int16_t)values[i];                                            \
        else {                                                                                                         \
            int64_t whole = aq_least(size, w->dimension / 2 - start);                                                  \
            for (int64_t i = 0; i < whole; i++) out[i] = (int16_t)(values[2 * i + 1] * 256 + (values[2 * i] & 255));   \
            if (whole < size) out[whole] = (int16_t)(values[2 * whole] & 255); /* a 0 behind the last element */       \
        }                                                                                                              \
    }
    CONVERT(int8_t)
    CONVERT(int16_t)
    CONVERT(int32_t)
#undef CONVERT
}

static void write_chunks(void *context, int64_t first, int64_t last) {
    const writing *w = context;
    const aq_dense_kernels *kernels = AQ_PICK(aq_dense_rounds);
    int32_t pairs = w->alphabet.table->pairs, size = pairs ? 2 * w->bytes : w->bytes;
    int32_t direct = !w->alphabet.wide && size <= 2;
    int16_t strip[STRIP];
    for (int64_t chunk = first; chunk < last; chunk++) {
        uint16_t *words = w->words + chunk * w->most_words, *p = words;
        uint32_t states[AQ_LANES];
        int64_t start = chunk * w->chunk, end = aq_least(w->count, start + w->chunk);
        int64_t rounds = (end - start - 1) / w->lanes, tail = end - start - rounds * w->lanes;
        for (int32_t lane = 0; lane < w->lanes; lane++) states[lane] = AQ_FLOOR;
        symbols_of(w, end - tail, tail, strip); /* the last round, which may be incomplete, or end with half a pair */
        for (int64_t lane = 0; lane < tail; lane++)
            states[lane] = aq_encode_symbol(states[lane], w->rows[strip[lane] - w->lowest], &p);
        if (direct)
            p = kernels->encode((const uint8_t *)w->values + size * start, size, rounds, w->lanes, w->lowest, w->rows,
                                states, p);
        while (!direct && rounds > 0) {
            int64_t some = aq_least(rounds, STRIP / w->lanes);
            rounds -= some;
            symbols_of(w, start + rounds * w->lanes, some * w->lanes, strip);
            p = kernels->encode(strip, 2, some, w->lanes, w->lowest, w->rows, states, p);
        }
        memcpy(p, states, 4 * (size_t)w->lanes);
        w->sizes[chunk] = p - words;
    }
}

/* What writing takes for each symbol from w->lowest on. */
static void prepare_rows(writing *w, aq_arena *arena) {
    const aq_table *table = w->alphabet.table;
    int64_t lowest = lowest_symbol(&w->alphabet, 0), end = lowest, start = 0;
    for (int32_t i = 0; i < table->count; i++) {
        int64_t here = lowest_symbol(&w->alphabet, i), behind = here + (1 << kept_width(table, i));
        lowest = here < lowest ? here : lowest, end = behind > end ? behind : end;
    }
    uint64_t *rows = aq_take(arena, 8 * (uint64_t)(end - lowest));
    w->lowest = (int32_t)lowest, w->rows = rows;
    if (!rows) return;
    for (int32_t i = 0; i < table->count; i++) {
        int32_t kept = kept_width(table, i);
        for (int64_t raw = 0; raw < 1 << kept; raw++)
            rows[lowest_symbol(&w->alphabet, i) - lowest + raw] = aq_row(start, raw, kept, table->frequency[i]);
        start += table->frequency[i];
    }
}

static void prepare_symbols(writing *w, aq_arena *arena) {
    const alphabet *a = &w->alphabet;
    if (!a->wide) return;
    int64_t last = (int64_t)a->base[a->symbols - 1] + (1 << a->extra[a->symbols - 1]), k = 0;
    w->first = a->base[0];
    int16_t *symbol_of = aq_take(arena, 2 * (uint64_t)(last - w->first));
    w->symbol_of = symbol_of;
    if (!symbol_of) return;
    for (int32_t symbol = 0; symbol < a->symbols; symbol++) { /* levels between intervals do not occur */
        int64_t end = symbol + 1 < a->symbols ? a->base[symbol + 1] : last;
        while (k < end - w->first) symbol_of[k++] = (int16_t)symbol;
    }
}

/* What lies below each level's symbol; returns the place behind it. */
static uint8_t *write_low(const writing *w, uint8_t *out) {
    aq_bits bits = {out, 0, 0};
    for (int64_t i = 0; i < w->dimension; i++) {
        int64_t level = aq_level_at(w->values, w->bytes, i);
        int16_t symbol = w->symbol_of[level - w->first];
        aq_put(&bits, (uint64_t)(level - w->alphabet.base[symbol]), w->alphabet.extra[symbol]);
    }
    return bits.out + (bits.filled > 0);
}

int64_t aq_dense_write_planned(const void *values, int32_t bytes, int64_t dimension, const aq_dense_plan *plan,
                               uint8_t *body, uint64_t room, aq_arena *arena, aq_each each, aq_error *error) {
    aq_arena mine = *arena;
    writing w = {.values = values, .bytes = bytes, .lanes = plan->lanes, .dimension = dimension};
    w.count = aq_symbols(dimension, plan->table.pairs);
    w.chunk = (int64_t)1 << plan->exponent;
    w.alphabet = alphabet_of(&plan->table, &mine);
    int64_t chunks = (w.count + w.chunk - 1) / w.chunk;
    w.most_words = aq_least(w.chunk, w.count) + 2 * w.lanes + 16;
    w.words = aq_take(&mine, 2 * (uint64_t)(chunks * w.most_words));
    w.sizes = aq_take(&mine, 8 * (uint64_t)chunks);
    uint8_t *low = w.alphabet.wide ? aq_take(&mine, (uint64_t)dimension * MOST_LOW / 8 + 9) : NULL, *low_end = low;
    if (!mine.lacking) prepare_rows(&w, &mine);
    if (!mine.lacking) prepare_symbols(&w, &mine);
    if (aq_lacks(&mine, error)) return -1;
    aq_run(each, write_chunks, &w, chunks, 1);
    if (low) low_end = write_low(&w, low);
    uint64_t place = plan->head_size, total = (uint64_t)(low_end - low);
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        place += aq_varint_size((uint64_t)w.sizes[chunk]);
        total += 2 * (uint64_t)w.sizes[chunk] + 4 * (uint64_t)w.lanes;
    }
    total += (place + 3) & ~(uint64_t)3;
    if (total > room) return -aq_fail(error, AQ_ROOM, (int64_t)total, 0, 0, 0);
    place = plan->head_size;
    memcpy(body, plan->head, plan->head_size);
    for (int64_t chunk = 0; chunk < chunks; chunk++) place = aq_write_varint(body, place, (uint64_t)w.sizes[chunk]);
    while (place & 3) body[place++] = 0;
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        uint64_t size = 2 * (uint64_t)w.sizes[chunk] + 4 * (uint64_t)w.lanes;
        memcpy(body + place, w.words + chunk * w.most_words, size);
        place += size;
    }
    if (low) memcpy(body + place, low, (size_t)(low_end - low));
    return (int64_t)(place + (uint64_t)(low_end - low));
}

int64_t aq_dense_write(const void *values, int32_t bytes, int64_t dimension, int64_t top, uint8_t *body, uint64_t room,
                       aq_arena *arena, aq_each each, aq_error *error) {
    aq_arena mine = *arena;
    aq_census census;
    aq_dense_plan plan;
    if (aq_count(values, bytes, dimension, top, dimension >= AQ_LONG, &census, &mine, each, error)) return -1;
    if (aq_dense_choose(&census, aq_entropy(&census), &plan, &mine, error)) return -1;
    return aq_dense_write_planned(values, bytes, dimension, &plan, body, room, &mine, each, error);
}

/* -- reading */

typedef struct {
    const uint8_t *streams; /* words and states */
    const uint64_t *slots;
    int64_t *edges; /* of the chunks, in words */
    uint8_t *wrong; /* of each chunk */
    uint64_t *bits; /* of each chunk: its low bits; then where they begin */
    const uint8_t *low;
    uint64_t low_size;
    alphabet alphabet;
    int32_t lanes, bytes;
    int64_t dimension, chunk, count;
    void *values;
    int16_t *symbols; /* where intervals are wide and there are values */
} reading;

/* The bits that these symbols leave out. */
static uint64_t low_bits(const reading *r, const int16_t *symbols, int64_t size) {
    uint64_t bits = 0;
    for (int64_t i = 0; i < size; i++) bits += r->alphabet.extra[symbols[i]];
    return bits;
}

/* Hand over symbols start to start + size; returns the bits that they leave out. */
static uint64_t take_symbols(const reading *r, int64_t start, int64_t size, const int16_t *from) {
    if (r->alphabet.wide) {
        if (r->symbols) memcpy(r->symbols + start, from, 2 * (size_t)size);
        return low_bits(r, from, size);
    }
    if (!r->values) return 0;
#define CONVERT(type)                                                                                                  \
    if (r->bytes == (int32_t)sizeof(type)) {                                                                           \
        type *values = (type *)r->values + (r->alphabet.table->pairs ? 2 : 1) * start;                                 \
        if (!r->alphabet.table->pairs)                                                                                 \
            for (int64_t i = 0; i < size; i++) values[i] = (type)from[i];                                              \
        else {                                                                                                         \
            int64_t whole = aq_least(size, r->dimension / 2 - start);                                                  \
            for (int64_t i = 0; i < whole; i++) {                                                                      \
                values[2 * i] = (int8_t)from[i];                                                                       \
                values[2 * i + 1] = (type)(from[i] >> 8);                                                              \
            }                                                                                                          \
            if (whole < size) values[2 * whole] = (int8_t)from[whole];                                                 \
        }                                                                                                              \
    }
    CONVERT(int8_t)
    CONVERT(int16_t)
    CONVERT(int32_t)
#undef CONVERT
    return 0;
}

/* Read up to `lanes` symbols one by one, whatever words there are; whether there were enough. */
static int32_t read_round(const reading *r, const uint8_t *words, int64_t *place, uint32_t *states, int64_t size,
                          int16_t *symbols) {
    int64_t p = *place;
    for (int64_t lane = size - 1; lane >= 0; lane--) {
        uint32_t x = states[lane];
        symbols[lane] = (int16_t)aq_decode_symbol(&x, r->slots[x & (AQ_SLOTS - 1)]);
        if (x < AQ_FLOOR) {
            if (--p < 0) return 0;
            x = x << 16 | aq_word(words, p);
        }
        states[lane] = x;
    }
    *place = p;
    return 1;
}

/* Whether the chunk is what was written. */
static int32_t read_chunk(const reading *r, const aq_dense_kernels *kernels, int64_t chunk) {
    const uint8_t *words = r->streams + 2 * r->edges[chunk];
    int64_t place = r->edges[chunk + 1] - r->edges[chunk] - 2 * r->lanes;
    int64_t start = chunk * r->chunk, end = aq_least(r->count, start + r->chunk);
    int32_t pairs = r->alphabet.table->pairs, size = pairs ? 2 * r->bytes : r->bytes;
    int32_t direct = r->values && (size <= 2 || !pairs);
    uint8_t *out = r->values;
    if (r->symbols) out = (uint8_t *)r->symbols, size = 2;
    uint32_t states[AQ_LANES];
    int16_t strip[STRIP];
    uint64_t bits = 0;
    memcpy(states, words + 2 * place, 4 * (size_t)r->lanes);
    for (int32_t lane = 0; lane < r->lanes; lane++)
        if (states[lane] < AQ_FLOOR || states[lane] >> 31) return 0;
    for (int64_t at = start; at < end;) {
        /* Whole rounds but the last one, which may end with half a pair. */
        int64_t rounds = (end - at - 1) / r->lanes, done;
        if (direct) {
            done = kernels->decode(words, &place, r->slots, states, out + size * at, size, rounds, r->lanes);
            if (r->symbols) bits += low_bits(r, r->symbols + at, done * r->lanes);
        } else {
            rounds = aq_least(rounds, STRIP / r->lanes);
            done = kernels->decode(words, &place, r->slots, states, strip, 2, rounds, r->lanes);
            bits += take_symbols(r, at, done * r->lanes, strip);
        }
        at += done * r->lanes;
        if (done) continue;
        int64_t some = aq_least(end - at, r->lanes);
        if (!read_round(r, words, &place, states, some, strip)) return 0;
        bits += take_symbols(r, at, some, strip);
        at += some;
        if (at == r->count && pairs && r->dimension & 1 && strip[some - 1] >> 8) return 0;
    }
    for (int32_t lane = 0; lane < r->lanes; lane++)
        if (states[lane] != AQ_FLOOR) return 0;
    r->bits[chunk] = bits;
    return place == 0;
}

static void read_chunks(void *context, int64_t first, int64_t last) {
    const reading *r = context;
    const aq_dense_kernels *kernels = AQ_PICK(aq_dense_rounds);
    for (int64_t chunk = first; chunk < last; chunk++) r->wrong[chunk] = !read_chunk(r, kernels, chunk);
}

/* values = what the symbols begin with, and their low bits. */
AQ_INLINE void join(int32_t bytes, const reading *r, int64_t first, int64_t last, uint64_t position) {
    const int32_t *base = r->alphabet.base;
    const uint8_t *extra = r->alphabet.extra;
    void *values = r->values;
    for (int64_t i = first; i < last; i++) {
        int16_t symbol = r->symbols[i];
        uint64_t low = aq_look(r->low, r->low_size, position) & aq_ones(extra[symbol]);
        aq_put_level(values, bytes, i, base[symbol] + (int32_t)low);
        position += extra[symbol];
    }
}

static void join_chunks(void *context, int64_t first, int64_t last) {
    const reading *r = context;
    AQ_BY_SIZE(r->bytes, join, r, first * r->chunk, aq_least(r->count, last * r->chunk), r->bits[first]);
}

static void prepare_slots(const alphabet *a, uint64_t *slots) {
    for (int32_t i = 0; i < a->table->count; i++) {
        uint64_t lowest = (uint64_t)(int64_t)lowest_symbol(a, i), f = a->table->frequency[i];
        uint64_t here = (lowest << 3 | (uint64_t)kept_width(a->table, i)) << 32 | f;
        for (uint64_t place = 0; place < f; place++) *slots++ = here + (place << 16);
    }
}

int32_t aq_dense_read(const uint8_t *body, uint64_t size, int64_t dimension, int64_t top, void *values, int32_t bytes,
                      aq_arena *arena, aq_each each, aq_error *error) {
    aq_arena mine = *arena;
    aq_table table;
    if (size < 2) return aq_fail(error, AQ_TABLE_END, 0, 0, 0, 0);
    int32_t pairs = body[0] & 15, kind = body[0] >> 4, exponent = body[1];
    if (kind > 2) return aq_fail(error, AQ_STATES, body[0], 0, 0, 0);
    if (exponent < 16 || exponent > 20) return aq_fail(error, AQ_EXPONENT, exponent, 0, 0, 0);
    reading r = {.lanes = 4 << 2 * kind, .bytes = bytes, .dimension = dimension, .chunk = (int64_t)1 << exponent};
    r.count = aq_symbols(dimension, pairs), r.values = values;
    int64_t chunks = (r.count + r.chunk - 1) / r.chunk, least = 4 * r.lanes * chunks;
    if (size < (uint64_t)least) return aq_fail(error, AQ_DENSE_SIZE, (int64_t)size, dimension, least, 0);
    uint64_t *slots = aq_take(&mine, 8 * AQ_SLOTS);
    r.slots = slots;
    r.edges = aq_take(&mine, 8 * ((uint64_t)chunks + 1));
    r.bits = aq_take(&mine, 8 * ((uint64_t)chunks + 1));
    r.wrong = aq_take(&mine, (uint64_t)chunks);
    aq_table_take(&table, top, &mine);
    if (mine.lacking) { /* and what else it may take */
        aq_take(&mine, 9 * 8 * AQ_SLOTS + 2 * (uint64_t)dimension);
        return aq_lacks(&mine, error);
    }
    table.pairs = pairs;
    uint64_t number, place = aq_table_read(body, size, 2, top, &table, error);
    if (!place) return error->code;
    r.edges[0] = 0;
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        place = aq_table_number(body, size, place, &number, error);
        if (!place) return error->code;
        r.edges[chunk + 1] = r.edges[chunk] + (int64_t)number + 2 * r.lanes;
    }
    for (; place & 3; place++) {
        if (place >= size) return aq_fail(error, AQ_TABLE_END, 0, 0, 0, 0);
        if (body[place]) return aq_fail(error, AQ_TABLE_PADDING, 0, 0, 0, 0);
    }
    r.alphabet = alphabet_of(&table, &mine);
    if (r.alphabet.wide && values) r.symbols = aq_take(&mine, 2 * (uint64_t)dimension);
    uint64_t streams = 2 * (uint64_t)r.edges[chunks], left = size - place;
    if (streams > left || (streams < left && !r.alphabet.wide))
        return aq_fail(error, AQ_STREAMS, (int64_t)streams, (int64_t)left, 0, 0);
    if (aq_lacks(&mine, error)) return AQ_MEMORY;
    r.streams = body + place;
    r.low = r.streams + streams;
    r.low_size = left - streams;
    prepare_slots(&r.alphabet, slots);
    aq_run(each, read_chunks, &r, chunks, 1);
    uint64_t bits = 0;
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        if (r.wrong[chunk]) return aq_fail(error, AQ_STREAM, chunk, 0, 0, 0);
        uint64_t here = r.bits[chunk];
        r.bits[chunk] = bits;
        bits += here;
    }
    if (!r.alphabet.wide) return AQ_FINE;
    if (r.low_size != (bits + 7) / 8 || (bits & 7 && r.low[r.low_size - 1] >> (bits & 7)))
        return aq_fail(error, AQ_LOW_BITS, (int64_t)r.low_size, 0, 0, 0);
    if (values) aq_run(each, join_chunks, &r, chunks, 1);
    return AQ_FINE;
}
