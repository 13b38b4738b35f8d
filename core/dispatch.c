/* Which vectors this machine has: asked once, when the library is loaded. */
#include "vectors.h"

int32_t aq_vectors = 0;

#if defined(__x86_64__) && !defined(AQ_PORTABLE)
#include <cpuid.h> /* and not __builtin_cpu_supports, which zig's runtime does not have */

static int32_t has(uint32_t bits, uint32_t wanted) { return (bits & wanted) == wanted; }

static int32_t best(void) {
    const uint32_t saves = 1u << 27 | 1u << 28 | bit_POPCNT; /* OSXSAVE, AVX */
    const uint32_t avx2 = bit_BMI | bit_AVX2 | bit_BMI2;
    const uint32_t avx512 = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
    uint32_t a, b, c, d, extended, saved, unused;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, saves) || !__get_cpuid(0x80000001, &a, &b, &extended, &d) ||
        !has(extended, 1u << 5 /* LZCNT */) || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return 0;
    __asm__ volatile("xgetbv" : "=a"(saved), "=d"(unused) : "c"(0)); /* the registers that the system keeps */
    if (has(b, avx2 | avx512) && has(saved, 0xe6)) return 2;
    return has(b, avx2) && has(saved, 6) ? 1 : 0;
}
#else
static int32_t best(void) { return 0; }
#endif

__attribute__((constructor)) static void choose(void) { aq_vectors = best(); }

AQ_API int32_t aq_use(int32_t vectors) {
    int32_t most = best();
    aq_vectors = vectors < 0 || vectors > most ? most : vectors;
    return aq_vectors;
}
