/* Lets the fuzzer see which branches of the C extension an input goes along. Linked to it by tests/fuzz/covered.py.

   gcc calls __sanitizer_cov_trace_pc at each edge; libFuzzer wants a counter for each, and a table of as many
   addresses. Each address of the extension's code, which takes less than 64 KiB, has a counter. */

#include <stdint.h>

enum { COUNTERS = 1 << 16 };

static uint8_t counters[COUNTERS];
static struct {
    uintptr_t pc, flags;
} addresses[COUNTERS];

__attribute__((visibility("hidden"))) void
__sanitizer_cov_trace_pc(void)
{
    counters[(uintptr_t)__builtin_return_address(0) % COUNTERS]++;
}

typedef void (*Register)(const void *begin, const void *end);

void
cover(Register register_counters, Register register_addresses)
{
    for (int i = 0; i < COUNTERS; i++) {
        addresses[i].pc = (uintptr_t)&counters[i];
    }
    register_counters(counters, counters + COUNTERS);
    register_addresses(addresses, addresses + COUNTERS);
}
