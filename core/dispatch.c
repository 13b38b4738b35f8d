/* Which vectors this machine has: asked once, when the library is loaded. */
#include "vectors.h"

int32_t aq_vectors = 0, aq_folds = 0;

#if defined(__x86_64__) && !defined(AQ_PORTABLE)
#include <cpuid.h> /* and not __builtin_cpu_supports, which zig's runtime does not have */

static int32_t has(uint32_t bits, uint32_t wanted) { return (bits & wanted) == wanted; }

static int32_t best(int32_t *folds) {
    const uint32_t first = bit_PCLMUL | bit_POPCNT | bit_OSXSAVE | bit_AVX, lzcnt = 1u << 5;
    const uint32_t avx2 = bit_BMI | bit_AVX2 | bit_BMI2, folds_wide = 1u << 10; /* VPCLMULQDQ */
    const uint32_t avx512 = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
    uint32_t a, b, c, d, saved, unused;
    *folds = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, first)) return 0;
    if (!__get_cpuid(0x80000001, &a, &b, &c, &d) || !has(c, lzcnt)) return 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has(b, avx2)) return 0;
    __asm__ volatile("xgetbv" : "=a"(saved), "=d"(unused) : "c"(0)); /* the registers that the system keeps */
    if (!has(saved, 0x06)) return 0;
    int32_t vectors = has(b, avx512) && has(saved, 0xe6) ? 2 : 1;
    *folds = vectors == 2 && !has(c, folds_wide) ? 1 : vectors;
    return vectors;
}
#else
static int32_t best(int32_t *folds) { return *folds = 0; }
#endif

__attribute__((constructor)) static void choose(void) { aq_vectors = best(&aq_folds); }

AQ_API int32_t aq_use(int32_t vectors) {
    int32_t most = best(&aq_folds);
    aq_vectors = vectors < 0 || vectors > most ? most : vectors;
    aq_folds = aq_folds > aq_vectors ? aq_vectors : aq_folds;
    return aq_vectors;
}
