//! Finds what can be changed in a source file.

use std::ops::Range;

use proc_macro2::LineColumn;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// One change of a source file: text that is put before and after a part of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mutant {
    /// Counted from one.
    pub(crate) line: usize,
    /// What it does, for people.
    pub(crate) what: String,
    /// The bytes it is about.
    pub(crate) at: Range<usize>,
    /// Put before and after them; `{}` stands for the question whether the mutant is on.
    pub(crate) around: (&'static str, &'static str),
}

/// All mutants of a file, in the order in which they stand there.
pub(crate) fn mutants(text: &str) -> syn::Result<Vec<Mutant>> {
    let file = syn::parse_file(text)?;
    let mut lines = vec![0];
    lines.extend(text.match_indices('\n').map(|(at, _)| at + 1));
    let mut finder = Finder {
        text,
        lines,
        found: Vec::new(),
    };
    finder.visit_file(&file);
    Ok(finder.found)
}

struct Finder<'t> {
    text: &'t str,
    /// By line: the byte at which it begins.
    lines: Vec<usize>,
    found: Vec<Mutant>,
}

impl Finder<'_> {
    fn byte(&self, at: LineColumn) -> usize {
        let line = self.lines[at.line - 1];
        // A column counts characters.
        let characters = self.text[line..].char_indices();
        characters
            .map(|(byte, _)| byte)
            .nth(at.column)
            .map_or(self.text.len(), |byte| line + byte)
    }

    fn add(&mut self, of: &impl Spanned, what: &str, around: (&'static str, &'static str)) {
        let span = of.span();
        let at = self.byte(span.start())..self.byte(span.end());
        self.add_at(span.start().line, at, what, around);
    }

    fn add_at(
        &mut self,
        line: usize,
        at: Range<usize>,
        what: &str,
        around: (&'static str, &'static str),
    ) {
        let text = self.text[at.clone()].lines().next().unwrap_or_default();
        let text: String = text.trim().chars().take(70).collect();
        self.found.push(Mutant {
            line,
            what: format!("{what}: {text}"),
            at,
            around,
        });
    }

    /// A function that gives an answer without looking.
    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        if signature.constness.is_some() || block.stmts.is_empty() {
            return;
        }
        let returned = match &signature.output {
            syn::ReturnType::Default => String::new(),
            syn::ReturnType::Type(_, of) => {
                let span = of.span();
                self.text[self.byte(span.start())..self.byte(span.end())].to_owned()
            }
        };
        let returns: &[&'static str] = match &*returned {
            "" => &["if {} { return; }"],
            "bool" => &["if {} { return true; }", "if {} { return false; }"],
            "i64" | "u64" | "usize" | "u32" | "i32" | "i128" => {
                &["if {} { return 0; }", "if {} { return 1; }"]
            }
            of if of.starts_with("Option<") => &["if {} { return None; }"],
            of if of.starts_with("Vec<") => &["if {} { return Vec::new(); }"],
            of if of.starts_with("Result<(),") => &["if {} { return Ok(()); }"],
            _ => &[],
        };
        let open = block.brace_token.span.open();
        let at = self.byte(open.end());
        for early in returns {
            let answer = early.trim_start_matches("if {} { ").trim_end_matches(" }");
            let what = format!("fn {}: {answer}", signature.ident);
            self.found.push(Mutant {
                line: signature.span().start().line,
                what,
                at: at..at,
                around: (early, ""),
            });
        }
    }
}

/// Whether attributes say that something is for tests alone.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_test = attribute.path().is_ident("test");
        let tokens = attribute
            .meta
            .require_list()
            .map(|list| list.tokens.to_string());
        is_test || (attribute.path().is_ident("cfg") && tokens.is_ok_and(|tokens| tokens == "test"))
    })
}

/// Whether an expression does something and may give nothing.
fn is_call_or_assignment(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Try(of) => is_call_or_assignment(&of.expr),
        syn::Expr::Await(of) => is_call_or_assignment(&of.base),
        syn::Expr::Call(_) | syn::Expr::MethodCall(_) | syn::Expr::Assign(_) => true,
        _ => false,
    }
}

fn has_let(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(of) => has_let(&of.left) || has_let(&of.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, of: &'ast syn::ItemMod) {
        if !is_for_tests(&of.attrs) {
            visit::visit_item_mod(self, of);
        }
    }

    // What is computed at compile time cannot ask.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_expr_repeat(&mut self, _: &'ast syn::ExprRepeat) {}

    fn visit_item_fn(&mut self, of: &'ast syn::ItemFn) {
        if of.sig.constness.is_none() && !is_for_tests(&of.attrs) {
            self.function(&of.sig, &of.block);
            visit::visit_item_fn(self, of);
        }
    }

    fn visit_impl_item_fn(&mut self, of: &'ast syn::ImplItemFn) {
        if of.sig.constness.is_none() && !is_for_tests(&of.attrs) {
            self.function(&of.sig, &of.block);
            visit::visit_impl_item_fn(self, of);
        }
    }

    fn visit_expr_binary(&mut self, of: &'ast syn::ExprBinary) {
        use syn::BinOp::{And, Eq, Ge, Gt, Le, Lt, Ne, Or};
        match of.op {
            And(_) => {
                for side in [&of.left, &of.right] {
                    if !has_let(side) {
                        self.add(side, "always true", ("(", " || {})"));
                    }
                }
            }
            Or(_) => {
                for side in [&of.left, &of.right] {
                    self.add(side, "always false", ("((", ") && !{})"));
                }
            }
            Eq(_) | Ne(_) | Lt(_) | Le(_) | Gt(_) | Ge(_) => {
                self.add(of, "the contrary", ("((", ") != {})"));
            }
            _ => {}
        }
        visit::visit_expr_binary(self, of);
    }

    fn visit_expr_unary(&mut self, of: &'ast syn::ExprUnary) {
        if matches!(of.op, syn::UnOp::Not(_)) {
            self.add(of, "the contrary", ("((", ") != {})"));
        }
        visit::visit_expr_unary(self, of);
    }

    fn visit_expr_if(&mut self, of: &'ast syn::ExprIf) {
        let simple = matches!(
            *of.cond,
            syn::Expr::Call(_)
                | syn::Expr::MethodCall(_)
                | syn::Expr::Path(_)
                | syn::Expr::Field(_)
        );
        if simple {
            self.add(&*of.cond, "the contrary", ("((", ") != {})"));
        }
        visit::visit_expr_if(self, of);
    }

    /// A call whose answer nobody takes is left out.
    fn visit_block(&mut self, of: &'ast syn::Block) {
        for statement in &of.stmts {
            if let syn::Stmt::Expr(done, Some(_)) = statement
                && is_call_or_assignment(done)
            {
                self.add(done, "left out", ("if !{} { ", " }"));
            }
        }
        visit::visit_block(self, of);
    }
}
