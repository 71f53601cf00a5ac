# A guest that goes from real mode to long mode and says so: see probe.rs. It lies at 0xF0000, and its page tables at 0x1000.
.code16
.org 0
start:
    cli
    lgdtl %cs:(gdtr)
    movl %cr0, %eax
    orb $1, %al
    movl %eax, %cr0
    ljmpl $0x08, $(0xF0000 + protected)
.code32
protected:
    movw $0x10, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    xorl %eax, %eax
    movl $0x1000, %edi
    movl $0x1000, %ecx
    cld
    rep stosl
    movl $0x2003, 0x1000
    movl $0x3003, 0x2000
    movl $0x83, 0x3000
    movl $0x1000, %eax
    movl %eax, %cr3
    movl %cr4, %eax
    orl $0x20, %eax
    movl %eax, %cr4
    movl $0xC0000080, %ecx
    rdmsr
    orl $0x100, %eax
    wrmsr
    movl %cr0, %eax
    orl $0x80000000, %eax
    movl %eax, %cr0
    ljmpl $0x18, $(0xF0000 + long)
.code64
long:
    movw $0x501, %dx
    movb $0x11, %al
    outb %al, %dx
1:  hlt
    jmp 1b
.balign 8
gdt:
    .quad 0
    .quad 0x00CF9A000000FFFF
    .quad 0x00CF92000000FFFF
    .quad 0x00AF9A000000FFFF
gdtr:
    .word 31
    .long 0xF0000 + gdt
