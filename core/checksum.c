/* CRC-32 as zlib's: 0xEDB88320, lowest bits first. Where the processor multiplies without carries, 16 bytes are folded
 * onto bytes further on, which have the same remainder (Gopal et al. 2009); what is left goes through tables. */
#include "vectors.h"

/* Table t: the remainder of each byte with t bytes of zeros behind it, from those of its bits. */
#define BIT(i, b, c) ((i) >> b & 1 ? c : 0)
#define ENTRY(i, a, b, c, d, e, f, g, h)                                                                               \
    BIT(i, 0, a) ^ BIT(i, 1, b) ^ BIT(i, 2, c) ^ BIT(i, 3, d) ^ BIT(i, 4, e) ^ BIT(i, 5, f) ^ BIT(i, 6, g) ^           \
        BIT(i, 7, h)
#define FOUR(i, ...)                                                                                                   \
    ENTRY(i, __VA_ARGS__), ENTRY(i + 1, __VA_ARGS__), ENTRY(i + 2, __VA_ARGS__), ENTRY(i + 3, __VA_ARGS__)
#define SIXTEEN(i, ...)                                                                                                \
    FOUR(i, __VA_ARGS__), FOUR(i + 4, __VA_ARGS__), FOUR(i + 8, __VA_ARGS__), FOUR(i + 12, __VA_ARGS__)
#define QUARTER(i, ...)                                                                                                \
    SIXTEEN(i, __VA_ARGS__), SIXTEEN(i + 16, __VA_ARGS__), SIXTEEN(i + 32, __VA_ARGS__), SIXTEEN(i + 48, __VA_ARGS__)
#define TABLE(...)                                                                                                     \
    {QUARTER(0, __VA_ARGS__), QUARTER(64, __VA_ARGS__), QUARTER(128, __VA_ARGS__), QUARTER(192, __VA_ARGS__)}

static const uint32_t tables[8][256] = {
    TABLE(0x77073096, 0xEE0E612C, 0x076DC419, 0x0EDB8832, 0x1DB71064, 0x3B6E20C8, 0x76DC4190, 0xEDB88320),
    TABLE(0x191B3141, 0x32366282, 0x646CC504, 0xC8D98A08, 0x4AC21251, 0x958424A2, 0xF0794F05, 0x3B83984B),
    TABLE(0x01C26A37, 0x0384D46E, 0x0709A8DC, 0x0E1351B8, 0x1C26A370, 0x384D46E0, 0x709A8DC0, 0xE1351B80),
    TABLE(0xB8BC6765, 0xAA09C88B, 0x8F629757, 0xC5B428EF, 0x5019579F, 0xA032AF3E, 0x9B14583D, 0xED59B63B),
    TABLE(0x3D6029B0, 0x7AC05360, 0xF580A6C0, 0x30704BC1, 0x60E09782, 0xC1C12F04, 0x58F35849, 0xB1E6B092),
    TABLE(0xCB5CD3A5, 0x4DC8A10B, 0x9B914216, 0xEC53826D, 0x03D6029B, 0x07AC0536, 0x0F580A6C, 0x1EB014D8),
    TABLE(0xA6770BB4, 0x979F1129, 0xF44F2413, 0x33EF4E67, 0x67DE9CCE, 0xCFBD399C, 0x440B7579, 0x8816EAF2),
    TABLE(0xCCAA009E, 0x4225077D, 0x844A0EFA, 0xD3E51BB5, 0x7CBB312B, 0xF9766256, 0x299DC2ED, 0x533B85DA),
};

static uint32_t by_tables(uint32_t state, const uint8_t *data, uint64_t size) {
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        word ^= state;
        state = tables[7][word & 255] ^ tables[6][word >> 8 & 255] ^ tables[5][word >> 16 & 255] ^
                tables[4][word >> 24 & 255] ^ tables[3][word >> 32 & 255] ^ tables[2][word >> 40 & 255] ^
                tables[1][word >> 48 & 255] ^ tables[0][word >> 56];
    }
    for (; size; data++, size--) state = state >> 8 ^ tables[0][(state ^ *data) & 255];
    return state;
}

#if defined(__x86_64__) && !defined(AQ_PORTABLE)
#include <immintrin.h>

/* Multipliers that move 16 bytes onwards by so many bytes: x^(8 n + 32) and x^(8 n - 32) modulo the polynomial. */
#define BY_16 0x0CCAA009E, 0x1751997D0
#define BY_64 0x1C6E41596, 0x154442BD4
#define BY_256 0x1322D1430, 0x11542778A

__attribute__((target("pclmul,sse4.1"))) static inline __m128i onwards(__m128i v, __m128i by, __m128i onto) {
    return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(v, by, 0x00), _mm_clmulepi64_si128(v, by, 0x11)), onto);
}

__attribute__((target("pclmul,sse4.1"))) static uint32_t by_folds(uint32_t state, const uint8_t *data, uint64_t size) {
    const __m128i by_64 = _mm_set_epi64x(BY_64), by_16 = _mm_set_epi64x(BY_16);
    const __m128i *from = (const __m128i *)(const void *)data;
    __m128i v[4];
    for (int i = 0; i < 4; i++) v[i] = _mm_loadu_si128(from + i);
    v[0] = _mm_xor_si128(v[0], _mm_cvtsi32_si128((int32_t)state));
    for (from += 4, size -= 64; size >= 64; from += 4, size -= 64) {
        v[0] = onwards(v[0], by_64, _mm_loadu_si128(from));
        v[1] = onwards(v[1], by_64, _mm_loadu_si128(from + 1));
        v[2] = onwards(v[2], by_64, _mm_loadu_si128(from + 2));
        v[3] = onwards(v[3], by_64, _mm_loadu_si128(from + 3));
    }
    for (int i = 0; i < 3; i++) v[i + 1] = onwards(v[i], by_16, v[i + 1]);
    for (; size >= 16; from++, size -= 16) v[3] = onwards(v[3], by_16, _mm_loadu_si128(from));
    uint8_t last[16];
    memcpy(last, v + 3, 16);
    return by_tables(by_tables(0, last, 16), (const uint8_t *)from, size);
}

#define WIDE __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul")))

WIDE static inline __m512i onwards_wide(__m512i v, __m512i by, __m512i onto) {
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(v, by, 0x00), _mm512_clmulepi64_epi128(v, by, 0x11), onto,
                                     0x96);
}

/* The same with 256 bytes at a time, from 512 on. */
WIDE static uint32_t by_wide_folds(uint32_t state, const uint8_t *data, uint64_t size) {
    const __m512i by_256 = _mm512_broadcast_i32x4(_mm_set_epi64x(BY_256));
    const __m512i by_64 = _mm512_broadcast_i32x4(_mm_set_epi64x(BY_64));
    __m512i v[4];
    for (int i = 0; i < 4; i++) v[i] = _mm512_loadu_si512(data + 64 * i);
    v[0] = _mm512_xor_si512(v[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int32_t)state)));
    for (data += 256, size -= 256; size >= 256; data += 256, size -= 256) {
        v[0] = onwards_wide(v[0], by_256, _mm512_loadu_si512(data));
        v[1] = onwards_wide(v[1], by_256, _mm512_loadu_si512(data + 64));
        v[2] = onwards_wide(v[2], by_256, _mm512_loadu_si512(data + 128));
        v[3] = onwards_wide(v[3], by_256, _mm512_loadu_si512(data + 192));
    }
    for (int i = 0; i < 3; i++) v[i + 1] = onwards_wide(v[i], by_64, v[i + 1]);
    for (; size >= 64; data += 64, size -= 64) v[3] = onwards_wide(v[3], by_64, _mm512_loadu_si512(data));
    uint8_t last[64];
    _mm512_storeu_si512(last, v[3]);
    return by_tables(by_folds(0, last, 64), data, size);
}
#endif

AQ_API uint32_t aq_checksum(uint32_t before, const uint8_t *data, uint64_t size) {
    uint32_t state = ~before;
#if defined(__x86_64__) && !defined(AQ_PORTABLE)
    if (size >= 512 && aq_folds == 2) return ~by_wide_folds(state, data, size);
    if (size >= 64 && aq_folds >= 1) return ~by_folds(state, data, size);
#endif
    return ~by_tables(state, data, size);
}
