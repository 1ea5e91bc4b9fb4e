// faiss_compat.cpp -- lets Debian 13's libfaiss.a link on Debian 12 (glibc 2.36, libstdc++ 12).
//
// The symbols are weak, so that a system that has them uses its own. The C23 functions differ from the old ones only in
// accepting 0b... in base 0 and 2, which FAISS's index strings do not contain. <iostream> is included for its
// initialiser: if no C++ object includes it, FAISS's error output crashes.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>

extern "C" {
// They are not defined if glibc has them (2.38, Debian 13): strtol is then __isoc23_strtol, which would call itself.
#if !__GLIBC_PREREQ(2, 38)
__attribute__((weak)) long drt_compat_strtol(const char *text, char **end, int base) __asm__("__isoc23_strtol");
long drt_compat_strtol(const char *text, char **end, int base) { return std::strtol(text, end, base); }

__attribute__((weak)) int drt_compat_sscanf(const char *text, const char *format, ...) __asm__("__isoc23_sscanf");
int drt_compat_sscanf(const char *text, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = std::vsscanf(text, format, args);
    va_end(args);
    return n;
}
#endif

// Objects of GCC 13 and later refer to this symbol, so that a libstdc++ that initialises std::cout is loaded. No code
// calls it.
#if _GLIBCXX_RELEASE < 13
__attribute__((weak)) void drt_compat_ios_init() __asm__("_ZSt21ios_base_library_initv");
void drt_compat_ios_init() {}
#endif

__attribute__((weak)) void __cxa_call_terminate(void *) noexcept;
void __cxa_call_terminate(void *) noexcept { std::terminate(); }
}
