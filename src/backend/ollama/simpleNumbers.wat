;; Checks a vector 16 bytes at a time. `simpleNumbers.ts` has the assembled program; its test assembles this text again.
;;
;; A vector is simple when each of its numbers has one digit before the point and no exponent, and when there are no blanks:
;;
;;     number = ["-"] digit ["." digit+]        vector = "[" number ("," number)* "]"
;;
;; So each byte can be judged by the two bytes before it. The opening bracket counts as a comma, and so does the closing one.
;; A byte is right when all of these rules hold:
;;
;;   1  a comma or a point comes after a digit
;;   2  a minus comes after a comma
;;   4  a point comes two bytes after a comma or a minus
;;   8  a digit that comes after a digit does not come two bytes after a comma or a minus
;;  16  the byte is a comma, a minus, a point or a digit
;;
;; Each rule is a bit. For each of the three bytes a table has the rules that hold because of this byte, whatever the other
;; two are. The bits of the three bytes are joined by `or`: a rule is broken when its bit is in none of them.
;; The index of a table is the byte minus 0x2c: 0 "," 1 "-" 2 "." 4 to 13 "0" to "9". Other bytes have no bits: entries
;; that are 0, or an index above 15, for which `swizzle` gives 0.
(module
  ;; 4 pages, 256 KiB. It does not grow.
  (memory (export "memory") 4 4)

  ;; The vector is at 1 to `last`, which has its closing bracket. Up to `last` + 15 the memory is overwritten.
  ;; Returns how many numbers a simple vector has, and -1 for any other vector.
  (func (export "count") (param $last i32) (result i32)
    (local $at i32) (local $numbers i32) (local $index v128) (local $right v128)
    (i32.store8 (i32.const 1) (i32.const 0x2c))
    ;; The last 16 bytes that are read may go beyond the vector. A simple number comes there: ",0.0000000000000".
    (v128.store (local.get $last)
      (v128.const i8x16 0x2c 0x30 0x2e 0x30 0x30 0x30 0x30 0x30 0x30 0x30 0x30 0x30 0x30 0x30 0x30 0x30))
    (local.set $at (i32.const 2))
    (local.set $right (v128.const i8x16 31 31 31 31 31 31 31 31 31 31 31 31 31 31 31 31))
    (loop $next
      (local.set $index (i8x16.sub (v128.load (local.get $at)) (i8x16.splat (i32.const 0x2c))))
      (local.set $right (v128.and (local.get $right)
        (v128.or
          ;; by the byte itself
          (i8x16.swizzle
            (v128.const i8x16 30 29 26 0 23 23 23 23 23 23 23 23 23 23 0 0)
            (local.get $index))
          (v128.or
            ;; by the byte before it
            (i8x16.swizzle
              (v128.const i8x16 10 8 8 0 1 1 1 1 1 1 1 1 1 1 0 0)
              (i8x16.sub (v128.load (i32.sub (local.get $at) (i32.const 1))) (i8x16.splat (i32.const 0x2c))))
            ;; by the byte before that one
            (i8x16.swizzle
              (v128.const i8x16 4 4 8 0 8 8 8 8 8 8 8 8 8 8 0 0)
              (i8x16.sub (v128.load (i32.sub (local.get $at) (i32.const 2))) (i8x16.splat (i32.const 0x2c))))))))
      ;; Each number has one comma after it.
      (local.set $numbers (i32.add (local.get $numbers)
        (i32.popcnt (i8x16.bitmask (i8x16.eq (local.get $index) (i8x16.splat (i32.const 0)))))))
      (local.set $at (i32.add (local.get $at) (i32.const 16)))
      (br_if $next (i32.le_u (local.get $at) (local.get $last))))
    (select (local.get $numbers) (i32.const -1)
      (i8x16.all_true (i8x16.eq (local.get $right)
        (v128.const i8x16 31 31 31 31 31 31 31 31 31 31 31 31 31 31 31 31))))))
