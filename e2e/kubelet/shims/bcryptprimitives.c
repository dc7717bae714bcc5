// bcryptprimitives.dll for Wine 8, which has none: Go 1.21 and later start only if they find ProcessPrng there.
#include <windows.h>

// RtlGenRandom, by the name under which advapi32.dll exports it.
BOOLEAN WINAPI SystemFunction036(PVOID, ULONG);

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T length)
{
    while (length) {
        ULONG part = length > 0x10000000 ? 0x10000000 : (ULONG)length;
        SystemFunction036(data, part);
        data += part;
        length -= part;
    }
    return TRUE;
}
