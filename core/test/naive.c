/* See naive.h. Everything is read bit by bit: the lowest bit of the first byte is the first, as in the format. */
#include "naive.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const uint8_t *data;
    uint64_t at, end; /* in bits */
    jmp_buf *refuse;
} reader;

static const struct kind {
    uint32_t most;
    int keyed, rotates, numbered, linear;
} KINDS[] = {{65535, 0, 0, 0, 1}, {65535, 0, 0, 0, 1}, {65535, 1, 1, 0, 0}, {65535, 1, 1, 0, 0}, {65535, 1, 0, 0, 0},
             {65535, 1, 0, 0, 0}, {16, 1, 1, 0, 0},    {65535, 1, 1, 1, 0}, {1, 0, 0, 0, 1},     {127, 0, 0, 0, 0},
             {127, 0, 0, 0, 0},   {65535, 0, 0, 0, 1}, {65535, 0, 0, 0, 1}, {65535, 0, 0, 0, 1}};

static void require(reader *r, int condition) {
    if (!condition) longjmp(*r->refuse, 1);
}

static uint64_t left(const reader *r) { return r->end - r->at; }
static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t bit_at(const uint8_t *data, uint64_t i) { return data[i / 8] >> (i % 8) & 1; }

static uint64_t number(reader *r, uint64_t bits) {
    uint64_t value = 0;
    require(r, bits <= left(r) && bits < 65);
    for (uint64_t i = 0; i < bits; i++) value |= bit_at(r->data, r->at++) << i;
    return value;
}

static float number_float(reader *r) {
    uint32_t bits = (uint32_t)number(r, 32);
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static uint64_t varint(reader *r, int longest) {
    uint64_t value = 0;
    for (int i = 0; i < longest; i++) {
        uint64_t byte = number(r, 8);
        value |= (byte & 127) << (7 * i);
        if (byte < 128) {
            require(r, byte > 0 || i == 0);
            return value;
        }
    }
    require(r, 0);
    return 0;
}

static void zeros_to_multiple(reader *r, uint64_t bits) {
    while (r->at % bits) require(r, number(r, 1) == 0);
}

static reader part(reader *r, uint64_t bytes) { /* the next bytes, as bits of their own */
    require(r, bytes <= left(r) / 8);
    reader inner = {r->data + r->at / 8, 0, 8 * bytes, r->refuse};
    r->at += 8 * bytes;
    return inner;
}

static void finish(reader *r) {
    zeros_to_multiple(r, 8);
    require(r, left(r) == 0);
}

static void *make(naive_frame *frame, uint64_t count, uint64_t size) {
    void *made = calloc(count ? count : 1, size);
    if (!made || frame->count == 8) abort();
    return frame->made[frame->count++] = made;
}

static uint64_t ceil_log2(uint64_t n) {
    uint64_t bits = 0;
    while (bits < 63 && (uint64_t)1 << bits < n) bits++;
    return bits;
}

/* -- fixed */

static int32_t fixed_level(reader *r, const uint8_t *data, uint64_t first, uint64_t step, uint64_t row, uint64_t b,
                           int64_t top) {
    int64_t code = 0;
    for (uint64_t j = 0; j < b; j++) { /* bit row * b + j of a string that continues `step` bits on after each 32 */
        uint64_t place = row * b + j;
        code |= (int64_t)bit_at(data, first + place / 32 * step + place % 32) << j;
    }
    int64_t sign = (int64_t)1 << (b - 1), size = code % sign;
    require(r, size <= top);
    return (int32_t)(code >= sign ? -size : size);
}

static void fixed(reader *r, naive_frame *f) {
    uint64_t b = ceil_log2((uint64_t)f->top + 1) + 1, d = f->dimension, whole = d / 1024 * 1024;
    require(r, left(r) == (d * b + 7) / 8 * 8);
    const uint8_t *data = r->data + r->at / 8;
    for (uint64_t i = 0; i < whole; i++)
        f->values[i] = fixed_level(r, data, i / 1024 * 1024 * b + i % 32 * 32, 1024, i % 1024 / 32, b, f->top);
    for (uint64_t i = whole; i < d; i++) f->values[i] = fixed_level(r, data, whole * b, 32, i - whole, b, f->top);
    r->at += d * b;
    finish(r);
}

/* -- sparse */

static uint64_t ones(reader *r, uint64_t most) { /* up to a zero, which is skipped, or `most` */
    uint64_t count = 0;
    while (count < most && number(r, 1)) count++;
    return count;
}

static uint64_t gamma(reader *r) {
    uint64_t k = ones(r, UINT64_MAX);
    require(r, k < 63);
    return ((uint64_t)1 << k) + number(r, k);
}

typedef struct {
    uint64_t things, mean, bits, place; /* place: behind the last marked one */
} gaps;

static gaps gap_code(uint64_t things, uint64_t marked) {
    gaps code = {things, (16 * (things - marked) + 8 * marked) / marked, ceil_log2(things), 0};
    return code;
}

static uint64_t next_marked(reader *r, gaps *code) {
    uint64_t m = (177 * code->mean + 2048) >> 12, gap;
    m = m < 1 ? 1 : m;
    uint64_t q = ones(r, 20);
    if (q == 20) {
        gap = 20 * m + number(r, code->bits);
    } else {
        uint64_t b = ceil_log2(m), u = ((uint64_t)1 << b) - m, v = m > 1 ? number(r, b - 1) : 0;
        gap = q * m + (m > 1 && v >= u ? 2 * v + number(r, 1) - u : v);
    }
    code->mean = code->mean + gap - (code->mean >> 4);
    require(r, gap < code->things - code->place);
    code->place += gap + 1;
    return code->place - 1;
}

static void sparse_chunk(reader *r, int32_t *values, uint64_t size, uint64_t n, int64_t top, uint64_t *list) {
    gaps code = gap_code(size, n);
    for (uint64_t i = 0; i < n; i++) {
        list[i] = next_marked(r, &code);
        values[list[i]] = number(r, 1) ? -1 : 1;
    }
    for (int32_t reached = 2; reached <= 3; reached++) { /* the list shrinks to the elements of at least this size */
        uint64_t more = gamma(r) - 1;
        require(r, more <= n);
        if (more) code = gap_code(n, more);
        for (uint64_t i = 0; i < more; i++) {
            list[i] = list[next_marked(r, &code)];
            values[list[i]] = values[list[i]] < 0 ? -reached : reached;
        }
        n = more;
        if (!n) break;
    }
    for (uint64_t i = 0; i < n; i++) {
        uint64_t size_less_2 = gamma(r);
        require(r, size_less_2 <= 1 << 20);
        values[list[i]] = (values[list[i]] < 0 ? -1 : 1) * (int32_t)(size_less_2 + 2);
    }
    for (uint64_t i = 0; i < size; i++) require(r, values[i] <= top && values[i] >= -top);
    finish(r);
}

static void sparse(reader *r, naive_frame *f) {
    uint64_t c = number(r, 8), d = f->dimension, filled = 0;
    require(r, c >= 16 && c <= 32);
    uint64_t size = (uint64_t)1 << c, chunks = (d + size - 1) / size;
    uint64_t *counts = make(f, chunks, 8), *bytes = make(f, chunks, 8), *list = make(f, smaller(d, size), 8);
    for (uint64_t i = 0; i < chunks; i++) filled += (counts[i] = varint(r, 5)) > 0;
    uint64_t known = 0, last = filled;
    for (uint64_t i = 0; i < chunks; i++)
        if (counts[i] && --last) known += bytes[i] = varint(r, 5);
    require(r, known <= left(r) / 8);
    for (uint64_t i = chunks; i-- > 0 && filled;)
        if (counts[i]) {
            bytes[i] = left(r) / 8 - known;
            break;
        }
    for (uint64_t i = 0; i < chunks; i++) {
        uint64_t elements = smaller(size, d - i * size);
        require(r, counts[i] <= elements && counts[i] <= 4 * bytes[i]);
        if (!counts[i]) continue;
        reader chunk = part(r, bytes[i]);
        sparse_chunk(&chunk, f->values + i * size, elements, counts[i], f->top, list);
    }
    require(r, left(r) == 0);
}

/* -- dense */

typedef struct {
    int32_t lowest; /* level, or the number of a pair */
    uint32_t e, f, place;
} slot;

static uint64_t own(reader *r, slot *slots, uint64_t used, int32_t lowest, uint32_t e, uint64_t f) {
    require(r, f <= 4096 - used);
    for (uint32_t place = 0; place < f; place++) slots[used++] = (slot){lowest, e, (uint32_t)f, place};
    return used;
}

static void table_of_levels(reader *r, slot *slots, int64_t top) {
    int64_t lowest = -top;
    for (uint64_t used = 0; used < 4096;) {
        lowest += (int64_t)varint(r, 3);
        uint32_t e = (uint32_t)number(r, 8);
        uint64_t count = varint(r, 3);
        require(r, e <= 16 && count >= 1);
        for (; count; count--) {
            uint64_t f = varint(r, 3);
            require(r, f >= 1 && lowest + (1 << e) - 1 <= top);
            used = own(r, slots, used, (int32_t)lowest, e, f);
            lowest += 1 << e;
        }
    }
}

static void dense_chunk(reader *words, const slot *slots, uint64_t *states, uint64_t lanes, uint64_t count,
                        int32_t *symbols, uint8_t *low) {
    uint64_t unread = words->end / 16;
    for (uint64_t start = 0; start < count; start += lanes)
        for (uint64_t lane = smaller(lanes, count - start); lane-- > 0;) {
            slot here = slots[states[lane] % 4096];
            uint32_t h = here.e < 3 ? here.e : 3;
            uint64_t y = states[lane] / 4096;
            symbols[start + lane] = here.lowest + (int32_t)(y % (1u << h) << (here.e - h));
            low[start + lane] = (uint8_t)(here.e - h);
            states[lane] = here.f * (y >> h) + here.place;
            if (states[lane] < 1 << 15) {
                require(words, unread > 0);
                words->at = 16 * --unread; /* backwards */
                states[lane] = (states[lane] << 16) + number(words, 16);
            }
        }
    for (uint64_t lane = 0; lane < lanes; lane++) require(words, states[lane] == 1 << 15);
    require(words, unread == 0);
}

static void dense(reader *r, naive_frame *f) {
    slot slots[4096];
    uint64_t first = number(r, 8), c = number(r, 8), d = f->dimension, used = 0;
    int32_t t = (int32_t)(first % 16), side = 2 * t + 1;
    require(r, first / 16 <= 2 && t <= 7 && t <= f->top && c >= 16 && c <= 20);
    uint64_t lanes = (uint64_t)4 << (2 * (first / 16)), count = t ? (d + 1) / 2 : d, size = (uint64_t)1 << c;
    uint64_t chunks = (count + size - 1) / size;
    uint64_t *words = make(f, chunks, 8);
    uint8_t *low = make(f, count, 1);
    int32_t *symbols = make(f, count, 4);
    if (!t) table_of_levels(r, slots, f->top);
    for (int32_t pair = 0; t && pair < side * side; pair++) used = own(r, slots, used, pair, 0, varint(r, 3));
    require(r, !t || used == 4096);
    for (uint64_t i = 0; i < chunks; i++) words[i] = varint(r, 3);
    zeros_to_multiple(r, 32);
    for (uint64_t i = 0; i < chunks; i++) {
        uint64_t states[64];
        reader stream = part(r, 2 * words[i]);
        for (uint64_t lane = 0; lane < lanes; lane++) {
            states[lane] = number(r, 32);
            require(r, states[lane] >= 1 << 15 && states[lane] < (uint64_t)1 << 31);
        }
        dense_chunk(&stream, slots, states, lanes, smaller(size, count - i * size), symbols + i * size, low + i * size);
    }
    for (uint64_t i = 0; i < count; i++) {
        if (!t) {
            f->values[i] = symbols[i] + (int32_t)number(r, low[i]);
            continue;
        }
        f->values[2 * i] = symbols[i] / side - t;
        int32_t second = symbols[i] % side - t;
        if (2 * i + 1 < d) f->values[2 * i + 1] = second;
        else require(r, second == 0);
    }
    if (t) require(r, left(r) == 0);
    finish(r);
}

/* -- headers */

uint32_t naive_crc(const uint8_t *data, uint64_t size) {
    uint32_t crc = 0xFFFFFFFF;
    for (uint64_t i = 0; i < 8 * size; i++) {
        uint32_t low = (crc ^ (uint32_t)bit_at(data, i)) & 1;
        crc = crc >> 1 ^ (low ? 0xEDB88320 : 0);
    }
    return ~crc;
}

/* Cut the known segments into blocks of 2^k elements, the largest first; lengths: or NULL. Returns their number. */
static uint64_t cut(const naive_known *known, uint64_t largest, uint64_t *lengths) {
    uint64_t count = 0, segments = known->lengths ? known->segments : 1;
    for (uint64_t j = 0; j < segments; j++) {
        uint64_t rest = known->lengths ? known->lengths[j] : known->dimension;
        for (uint64_t block = largest; block && rest; block /= 2)
            for (; rest >= block; rest -= block, count++)
                if (lengths) lengths[count] = block;
    }
    return count;
}

static void list(reader *r, naive_frame *f) {
    uint64_t sum = 0;
    require(r, f->segments >= 1 && f->segments <= left(r) / 8);
    f->lengths = make(f, f->segments, 8);
    for (uint64_t j = 0; j < f->segments; j++) {
        sum += f->lengths[j] = varint(r, 5);
        require(r, f->lengths[j] >= 1);
    }
    require(r, sum == f->dimension);
}

static void tail(reader *r, naive_frame *f, int keyed) { /* what is behind the segments, and rules for them all */
    const struct kind *kind = &KINDS[f->quantizer];
    float number_of = 1;
    require(r, f->s >= 1 && f->s <= kind->most && f->segments <= left(r) / 32);
    f->scales = make(f, f->segments, 4);
    for (uint64_t j = 0; j < f->segments; j++) {
        float scale = f->scales[j] = number_float(r);
        uint64_t length = f->lengths[j];
        require(r, scale >= 0 && scale <= 0x1.fffffep127f && (!kind->linear || scale <= 0x1p127f));
        require(r, !kind->rotates || (length <= 1 << 20 && (length & (length - 1)) == 0));
    }
    if (kind->numbered) number_of = number_float(r);
    require(r, number_of >= 1 && number_of <= 0x1p20f);
    if (keyed) f->key = number(r, 64);
    f->top = f->s;
    if (f->quantizer == 4 || f->quantizer == 5) f->top = 2 * (int64_t)f->s + 2;
    if (f->quantizer == 11) f->top = 1;
    if (f->quantizer == 7)
        for (f->top = (int64_t)(16.0 * f->s / number_of); (double)f->top < 16.0 * f->s / number_of;) f->top++;
}

static void whole(reader *r, naive_frame *f, uint64_t most) {
    require(r, left(r) >= 36 * 8);
    uint64_t covered = left(r) / 8 - 4;
    r->at = 8 * covered;
    require(r, number(r, 32) == naive_crc(r->data, covered));
    r->at = 0, r->end = 8 * covered;
    require(r, number(r, 32) == 0x4C465141 && number(r, 8) == 1); /* AQFL */
    f->quantizer = (int)number(r, 8), f->codec = (int)number(r, 8);
    uint64_t layout = number(r, 8);
    f->s = (uint32_t)number(r, 32), f->segments = number(r, 32), f->dimension = number(r, 64);
    uint64_t body = number(r, 64);
    require(r, f->quantizer < 14 && f->dimension >= 1 && f->dimension <= most && layout <= 2);
    if (layout == 2) {
        list(r, f);
    } else {
        uint64_t size = layout ? varint(r, 5) : f->dimension;
        require(r, size >= 1 && f->segments == (f->dimension + size - 1) / size);
        require(r, f->segments <= left(r) / 32);
        f->lengths = make(f, f->segments, 8);
        for (uint64_t j = 0; j < f->segments; j++) f->lengths[j] = smaller(size, f->dimension - j * size);
    }
    tail(r, f, KINDS[f->quantizer].keyed);
    zeros_to_multiple(r, 64);
    require(r, left(r) % 8 == 0 && left(r) / 8 == body);
}

static void brief(reader *r, naive_frame *f, const naive_known *known, uint64_t most) {
    uint64_t flags = number(r, 8), way = flags % 4;
    f->codec = (int)number(r, 8);
    f->s = (uint32_t)smaller(varint(r, 5), 65536);
    f->quantizer = known->quantizer, f->dimension = known->dimension, f->key = known->key;
    require(r, flags < 8 && f->quantizer >= 0 && f->quantizer < 14 && f->dimension >= 1 && f->dimension <= most);
    const struct kind *kind = &KINDS[f->quantizer];
    require(r, (kind->rotates || way == 0 || way == 3) && (kind->keyed || flags < 4));
    require(r, !kind->keyed || flags >= 4 || known->keyed);
    if (way == 3) {
        f->segments = varint(r, 5);
        list(r, f);
    } else if (way) {
        f->segments = cut(known, way == 1 ? 1 << 16 : 1 << 20, NULL);
        f->lengths = make(f, f->segments, 8);
        cut(known, way == 1 ? 1 << 16 : 1 << 20, f->lengths);
    } else {
        f->segments = known->lengths ? known->segments : 1;
        f->lengths = make(f, f->segments, 8);
        f->lengths[0] = known->dimension;
        for (uint64_t j = 0; known->lengths && j < f->segments; j++) f->lengths[j] = known->lengths[j];
    }
    tail(r, f, flags >= 4);
}

int naive_read(const uint8_t *data, uint64_t size, uint64_t most, const naive_known *known, naive_frame *f) {
    jmp_buf refuse;
    reader r = {data, 0, 8 * size, &refuse};
    memset(f, 0, sizeof *f);
    if (setjmp(refuse)) {
        naive_free(f);
        return 0;
    }
    if (known && size && data[0] < 8) brief(&r, f, known, most);
    else whole(&r, f, most);
    reader body = part(&r, left(&r) / 8);
    require(&r, f->codec <= 2);
    f->values = make(f, f->dimension, 4);
    if (f->codec == 0) fixed(&body, f);
    if (f->codec == 1) sparse(&body, f);
    if (f->codec == 2) dense(&body, f);
    return 1;
}

void naive_free(naive_frame *f) {
    while (f->count) free(f->made[--f->count]);
}
