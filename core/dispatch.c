/* Which vectors this machine has: asked once, when the library is loaded. */
#include "vectors.h"

int32_t aq_vectors = 0;

static int32_t best(void) {
#if defined(__x86_64__) && !defined(AQ_PORTABLE)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("bmi2"))
        return 2;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2")) return 1;
#endif
    return 0;
}

__attribute__((constructor)) static void choose(void) { aq_vectors = best(); }

AQ_API int32_t aq_use(int32_t vectors) {
    int32_t most = best();
    aq_vectors = vectors < 0 || vectors > most ? most : vectors;
    return aq_vectors;
}
